// Package kube is a client of the Kubernetes API of each control plane on its own address, with the administrator's
// kubeconfig: nodes, pods and their eviction, leases, workloads, and the objects that this program applies. It returns
// what it finds; callers decide what that means.
package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/talosops/checks"
)

// ErrKubeconfig says what a kubeconfig needs, without quoting what was read.
var ErrKubeconfig = errors.New(
	"it is not a kubeconfig with a current context, an https server, its authority and a client certificate: " +
		"send the kubeconfig output of the stack",
)

// ParseConfig returns the server, its authority and the client certificate of a kubeconfig, and ignores everything that
// would start a program, read a file or use a proxy. It drops the parser's errors, which quote the text.
func ParseConfig(text string) (*rest.Config, error) {
	parsed, err := clientcmd.RESTConfigFromKubeConfig([]byte(text))
	if err != nil {
		return nil, ErrKubeconfig
	}

	server, err := url.Parse(parsed.Host)
	_, pairErr := tls.X509KeyPair(parsed.CertData, parsed.KeyData)

	if err != nil || pairErr != nil || server.Scheme != "https" || server.Hostname() == "" ||
		!x509.NewCertPool().AppendCertsFromPEM(parsed.CAData) {
		return nil, ErrKubeconfig
	}

	return &rest.Config{
		Host:          parsed.Host,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
		TLSClientConfig: rest.TLSClientConfig{
			CAData: parsed.CAData, CertData: parsed.CertData, KeyData: parsed.KeyData,
		},
		QPS:   -1, // no client-side rate limit: each call has a timeout
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
	}, nil
}

// Port is that of the API server on every control plane; that of the server in a kubeconfig may be a load balancer's.
const Port = "6443"

// Client connects to each control plane on its own address, which Talos adds to the API server's certificate: the
// server in the kubeconfig may be another control plane, or not exist yet.
type Client struct {
	config *rest.Config

	mu      sync.Mutex
	clients map[netip.Addr]serverClient
}

// serverClient is the client of one control plane.
type serverClient struct {
	*kubernetes.Clientset

	objects *dynamic.DynamicClient
	http    *http.Client
}

// Interface is the Kubernetes API of a control plane at its own address.
type Interface interface {
	Ready(ctx context.Context, address netip.Addr) error
	APIVersion(ctx context.Context, address netip.Addr) (string, error)
	Nodes(ctx context.Context, address netip.Addr) ([]Node, error)
	// PatchNode returns ErrChanged if the node was changed since it was read.
	PatchNode(ctx context.Context, address netip.Addr, node string, patch NodePatch) error
	DeleteNode(ctx context.Context, address netip.Addr, n Node) error
	LocalVolumes(ctx context.Context, address netip.Addr) ([]corev1.PersistentVolume, error)
	PodsOn(ctx context.Context, address netip.Addr, node string) ([]Pod, error)
	Evict(ctx context.Context, address netip.Addr, pod Pod) error
	Lease(ctx context.Context, address netip.Addr, name string) (Lease, error)
	PutLease(ctx context.Context, address netip.Addr, lease Lease) error
	GPUCluster(ctx context.Context, address netip.Addr, node string) (GPUCluster, error)
	PodNetwork(ctx context.Context, address netip.Addr, release string) (PodNetwork, error)
	// KubeProxy returns the image of Talos' own kube-proxy; empty = there is none.
	KubeProxy(ctx context.Context, address netip.Addr) (string, error)
	ApplyObject(ctx context.Context, address netip.Addr, o *unstructured.Unstructured) (changed bool, err error)
	// PruneObjects returns the names of the deleted objects.
	PruneObjects(
		ctx context.Context, address netip.Addr, part, kind string, wanted []*unstructured.Unstructured,
	) ([]string, error)

	Close()
}

// New returns a client with the credentials of a kubeconfig.
func New(text string) (*Client, error) {
	config, err := ParseConfig(text)
	if err != nil {
		return nil, err
	}

	return &Client{config: config, clients: map[netip.Addr]serverClient{}}, nil
}

func (k *Client) client(address netip.Addr) (serverClient, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if c, ok := k.clients[address]; ok {
		return c, nil
	}

	config := rest.CopyConfig(k.config)
	config.Host = "https://" + net.JoinHostPort(address.String(), Port)

	c := serverClient{}

	var err error
	if c.http, err = rest.HTTPClientFor(config); err == nil {
		c.Clientset, err = kubernetes.NewForConfigAndClient(config, c.http)
	}

	if err == nil {
		c.objects, err = dynamic.NewForConfigAndClient(config, c.http)
	}

	if err != nil {
		return c, fmt.Errorf("unable to create a client of the Kubernetes API: %w", err)
	}

	k.clients[address] = c

	return c, nil
}

// Close closes idle connections; it does not cancel requests.
func (k *Client) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()

	for address, c := range k.clients {
		c.http.CloseIdleConnections()

		delete(k.clients, address)
	}
}

// call makes a request to the API server at an address, within the timeout of a call.
func call[T any](
	ctx context.Context, k *Client, address netip.Addr, do func(context.Context, serverClient) (T, error),
) (result T, err error) {
	ctx, cancel := context.WithTimeout(ctx, checks.CallTimeout)
	defer cancel()

	c, err := k.client(address)
	if err == nil {
		result, err = do(ctx, c)
	}

	return result, apiError(err)
}

// apiError reduces an error to that of the response or of the connection, without its URL.
func apiError(err error) error {
	var (
		status  *apierrors.StatusError
		wrapped *url.Error
	)

	switch {
	case errors.As(err, &status):
		return &responseError{status}
	case errors.As(err, &wrapped):
		return wrapped.Err
	default:
		return err
	}
}

// responseError is an error response of the Kubernetes API, with its HTTP status in the text.
type responseError struct{ *apierrors.StatusError }

// Error implements error.
func (e *responseError) Error() string {
	text := statusText(e.StatusError)
	if message := messageOf(e.StatusError); message != "" {
		text += ": " + message
	}

	return text
}

// Unwrap lets the functions of apierrors find the status.
func (e *responseError) Unwrap() error { return e.StatusError }

// statusText returns the HTTP status of an error response, for example 403 Forbidden.
func statusText(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}

	code := int(status.Status().Code)

	return fmt.Sprintf("%d %s", code, http.StatusText(code))
}

// messageOf returns the message of an error response, or its body if that is no Status of Kubernetes.
func messageOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}

	if cause, is := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse); is {
		return strings.TrimSuffix(strings.TrimSpace(cause.Message), "unknown") // client-go's word for an empty body
	}

	return status.Status().Message
}

// failedChecks returns the checks in a response of /readyz that failed.
func failedChecks(body []byte) string {
	var failed []string

	for line := range strings.Lines(string(body)) {
		if check, ok := strings.CutPrefix(strings.TrimSpace(line), "[-]"); ok {
			failed = append(failed, check)
		}
	}

	if len(failed) == 0 {
		return ""
	}

	return ": " + strings.Join(failed, ", ")
}

// Ready returns nil if an API server is ready; the error names the checks that fail.
func (k *Client) Ready(ctx context.Context, address netip.Addr) error {
	body, err := k.getRaw(ctx, address, "/readyz")
	if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return errors.New(statusText(err) + failedChecks(body))
	}

	return err
}

// getRaw reads a path that is no resource. It returns the body of an error response, too.
func (k *Client) getRaw(ctx context.Context, address netip.Addr, path string) (body []byte, err error) {
	return call(ctx, k, address, func(ctx context.Context, c serverClient) ([]byte, error) {
		return c.RESTClient().Get().AbsPath(path).DoRaw(ctx)
	})
}

// APIVersion returns the Kubernetes version of an API server.
func (k *Client) APIVersion(ctx context.Context, address netip.Addr) (string, error) {
	body, err := k.getRaw(ctx, address, "/version")
	if err != nil {
		return "", err
	}

	var info version.Info
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("unable to read the version: %w", err)
	}

	return info.GitVersion, nil
}
