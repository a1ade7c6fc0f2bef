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
	// startPollInterval is the time between two readiness checks of a starting API server, pollInterval of a ready one.
	startPollInterval = 250 * time.Millisecond
	pollInterval      = 2 * time.Second
	// requestTimeout bounds one check.
	requestTimeout = 5 * time.Second
)

// pollReady checks whether the API server is ready until done returns true or the context ends.
func (s *StaticPods) pollReady(ctx context.Context, client kubernetes.Interface, done func(ready bool) bool) {
	for ctx.Err() == nil {
		ready := isReady(ctx, client)
		s.m.APIServerReady(ctx, ready)

		if done(ready) {
			return
		}

		pause := startPollInterval
		if ready {
			pause = pollInterval
		}

		controlplane.Sleep(ctx, pause)
	}
}

func isReady(ctx context.Context, client kubernetes.Interface) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	return client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil
}

// watchNodes passes every Node object to the machine until the context ends.
func (s *StaticPods) watchNodes(ctx context.Context, client kubernetes.Interface) {
	observe := func(deleted bool) func(any) {
		return func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}

			if n, ok := o.(*corev1.Node); ok {
				s.m.ObserveNode(n, deleted)
			}
		}
	}

	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(
			client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll, fields.Everything(),
		),
		ObjectType: &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: observe(false), UpdateFunc: func(_, o any) { observe(false)(o) },
			DeleteFunc: observe(true),
		},
	})
	informer.RunWithContext(ctx)
}
