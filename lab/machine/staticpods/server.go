package staticpods

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"talos-proxmox/lab/machine/controlplane"
)

const (
	// poll is how often an API server that starts is asked whether it is ready, look how often one that is.
	poll = 250 * time.Millisecond
	look = 2 * time.Second
	// patience bounds one question.
	patience = 5 * time.Second
)

// follow keeps asking whether the API server is ready until it is as wanted, or the context ends.
func (s *StaticPods) follow(ctx context.Context, client kubernetes.Interface, wanted func(ready bool) bool) {
	for ctx.Err() == nil {
		ready := isReady(ctx, client)
		s.m.APIServerReady(ctx, ready)

		if wanted(ready) {
			return
		}

		pause := poll
		if ready {
			pause = look
		}

		controlplane.Wait(ctx, pause)
	}
}

func isReady(ctx context.Context, client kubernetes.Interface) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	return client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil
}

// observeNodes tells the machine of every Node object until the context ends.
func (s *StaticPods) observeNodes(ctx context.Context, client kubernetes.Interface) {
	saw := func(deleted bool) func(any) {
		return func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}

			if n, ok := o.(*corev1.Node); ok {
				s.m.SawNode(n, deleted)
			}
		}
	}

	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(
			client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll, fields.Everything(),
		),
		ObjectType: &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: saw(false), UpdateFunc: func(_, o any) { saw(false)(o) },
			DeleteFunc: saw(true),
		},
	})
	informer.RunWithContext(ctx)
}
