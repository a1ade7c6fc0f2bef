package kubelet

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/container"
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/kubeletapi"
)

// headerTimeout is how long a client may take to send its request headers.
const headerTimeout = 5 * time.Second

// Server returns the server of the kubelet's own API.
func (k *Kubelet) Server(serving func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *http.Server {
	return &http.Server{
		Handler: kubeletapi.NewHandler(k, k.authorities, k.reviewer), ReadHeaderTimeout: headerTimeout,
		ErrorLog: log.New(io.Discard, "", 0), // drops messages about clients that hang up
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, GetCertificate: serving, ClientAuth: tls.RequestClientCert,
			NextProtos: []string{"http/1.1"}, // exec and attach upgrade connections
		},
	}
}

// authorities returns the authorities whose client certificates authenticate users.
func (k *Kubelet) authorities() *x509.CertPool {
	if cfg := k.m.KubeletFacts().Config; cfg != nil {
		return certificates.ClusterPool(cfg)
	}

	return x509.NewCertPool()
}

// reviewer returns a client of the API server that authenticates and authorizes callers, and the node's name.
func (k *Kubelet) reviewer() (client kubernetes.Interface, node string, err error) {
	r, err := k.activeSession()
	if err != nil {
		return nil, "", err
	}

	return r.Client, r.Node, nil
}

// findContainer returns a pod of the node and one of its containers, which is nil before its first start; the caller
// holds the kubelet's lock.
func (k *Kubelet) findContainer(n kubeletapi.ContainerName) (*localPod, *localContainer, error) {
	for _, p := range k.pods {
		if p.pod.Namespace == n.Namespace && p.pod.Name == n.Pod {
			return p, p.containers[n.Container], nil
		}
	}

	return nil, nil, kubeletapi.NotFoundError{Text: fmt.Sprintf("pod %q not found", n.Pod+"_"+n.Namespace)}
}

// CopyLog implements kubeletapi.Containers. The log of a static pod is that of its process.
func (k *Kubelet) CopyLog(ctx context.Context, n kubeletapi.ContainerName, o corev1.PodLogOptions, w io.Writer) error {
	k.mu.Lock()

	p, c, err := k.findContainer(n)
	if err != nil {
		k.mu.Unlock()

		return err
	}

	log := p.containerLog(c, o.Previous)
	static, state := isStatic(p.pod), p.state
	k.mu.Unlock()

	if static && !o.Previous {
		return k.copyProcessLog(ctx, n.Container, o, w)
	}

	if log == nil && state.Log != "" {
		log = &container.Log{}
		_, _ = log.Write([]byte(state.Log))
		log.Close()
	}

	switch {
	case log != nil:
		return log.Copy(ctx, w, o)
	case o.Previous:
		return fmt.Errorf("previous terminated container %q in pod %q not found", n.Container, n.Pod)
	default:
		return fmt.Errorf("container %q in pod %q is waiting to start: %s", n.Container, n.Pod,
			cmp.Or(state.Reason, "ContainerCreating"))
	}
}

// containerLog returns the log of a container's last run, or of the previous one.
func (p *localPod) containerLog(c *localContainer, previous bool) *container.Log {
	switch {
	case c == nil || p.state.Log != "":
		return nil
	case previous && (c.running || c.ended == nil):
		return c.previousLog
	default:
		return c.log
	}
}

// copyProcessLog writes the log of a control plane component.
func (k *Kubelet) copyProcessLog(ctx context.Context, component string, o corev1.PodLogOptions, w io.Writer) error {
	host, err := k.m.Host()
	if err != nil {
		return err
	}

	file, err := os.Open(host.LogFile(component))
	if err != nil {
		return fmt.Errorf("unable to read the log of %s: %w", component, err)
	}

	defer func() { _ = file.Close() }()

	var log container.Log

	if _, err := io.Copy(&log, file); err != nil {
		return fmt.Errorf("unable to read the log of %s: %w", component, err)
	}

	ctx, stop := context.WithCancel(ctx)

	var reading sync.WaitGroup

	defer reading.Wait()
	defer stop()

	if o.Follow {
		reading.Go(func() {
			for err := error(nil); err == nil && ctx.Err() == nil; controlplane.Sleep(ctx, syncInterval) {
				_, err = io.Copy(&log, file)
			}

			log.Close()
		})
	} else {
		log.Close()
	}

	return log.Copy(ctx, w, o)
}

// findRunning returns a running container.
func (k *Kubelet) findRunning(n kubeletapi.ContainerName) (runningContainer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	p, c, err := k.findContainer(n)

	switch {
	case err != nil:
		return runningContainer{}, err
	case isStatic(p.pod):
		return runningContainer{}, fmt.Errorf("%s is a process of labkube: there is no container to run commands in",
			n.Container)
	case c == nil || !c.running:
		return runningContainer{}, kubeletapi.NotFoundError{
			Text: fmt.Sprintf("container not found (%q)", n.Container),
		}
	default:
		return runningContainer{c.process, c.log, c.stdin, c.done}, nil
	}
}

// runningContainer is one run of a container.
type runningContainer struct {
	process container.Container
	log     *container.Log
	stdin   *io.PipeWriter
	done    <-chan struct{}
}

// Exec implements kubeletapi.Containers.
func (k *Kubelet) Exec(ctx context.Context, n kubeletapi.ContainerName, command []string, s container.Streams,
) (int, error) {
	c, err := k.findRunning(n)
	if err != nil {
		return 0, err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	go func() { // the command ends with its container
		select {
		case <-c.done:
			cancel()
		case <-ctx.Done():
		}
	}()

	status, err := c.process.Run(ctx, command, s)
	if errors.Is(err, context.Canceled) {
		return statusKilled, nil
	}

	return status, err
}

// Attach implements kubeletapi.Containers.
func (k *Kubelet) Attach(ctx context.Context, n kubeletapi.ContainerName, s container.Streams) error {
	c, err := k.findRunning(n)
	if err != nil {
		return err
	}

	if c.stdin != nil && s.Stdin != nil {
		go func() {
			_, _ = io.Copy(c.stdin, s.Stdin) // ends with the client's stream or with the container
			_ = c.stdin.Close()
		}()
	}

	return c.log.Copy(ctx, s.Stdout, corev1.PodLogOptions{Follow: true})
}
