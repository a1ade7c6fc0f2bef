// Package kube is a client of the Kubernetes API of each control plane on its own address, with the administrator's
// kubeconfig: nodes, pods and their eviction, leases, workloads, and the objects that this program applies. It answers
// with what was found, and judges nothing.
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
	"net/url"
	"strings"
	"sync"

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

// ErrKubeconfig says what a kubeconfig needs, and nothing of what was read.
var ErrKubeconfig = errors.New(
	"it is not a kubeconfig with a current context, an https server, its authority and a client certificate: " +
		"send the kubeconfig output of the stack",
)

// ParseConfig takes the server, its authority and the client certificate, and nothing that would start a program,
// read a file or pass a proxy. It never repeats what it read: the parser's own messages quote the text.
func ParseConfig(text string) (*rest.Config, error) {
	read, err := clientcmd.RESTConfigFromKubeConfig([]byte(text))
	if err != nil {
		return nil, ErrKubeconfig
	}

	server, err := url.Parse(read.Host)
	_, pairErr := tls.X509KeyPair(read.CertData, read.KeyData)

	if err != nil || pairErr != nil || server.Scheme != "https" || server.Hostname() == "" ||
		!x509.NewCertPool().AppendCertsFromPEM(read.CAData) {
		return nil, ErrKubeconfig
	}

	return &rest.Config{
		Host:          read.Host,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
		TLSClientConfig: rest.TLSClientConfig{
			CAData: read.CAData, CertData: read.CertData, KeyData: read.KeyData,
		},
		QPS:   -1, // each call has its limit
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
	}, nil
}

// ServerPort is the port of a kubeconfig's server.
func ServerPort(config *rest.Config) string {
	if server, err := url.Parse(config.Host); err == nil && server.Port() != "" {
		return server.Port()
	}

	return "443"
}

// Client reaches each control plane on its own address, while TLS still verifies the name in the kubeconfig:
// the shared address may be somewhere else, or nowhere yet.
type Client struct {
	config *rest.Config

	mu      sync.Mutex
	clients map[string]serverClient
}

// serverClient asks one control plane.
type serverClient struct {
	*kubernetes.Clientset

	objects *dynamic.DynamicClient
	http    *http.Client
}

// Interface asks the Kubernetes API on one control plane's own address.
type Interface interface {
	Ready(ctx context.Context, address string) error
	APIVersion(ctx context.Context, address string) (string, error)
	Nodes(ctx context.Context, address string) ([]Node, error)
	// PatchNode returns ErrChanged where the node is not the one that was read any more.
	PatchNode(ctx context.Context, address, node string, patch NodePatch) error
	DeleteNode(ctx context.Context, address string, n Node) error
	PodsOn(ctx context.Context, address, node string) ([]Pod, error)
	Evict(ctx context.Context, address string, pod Pod) error
	Lease(ctx context.Context, address, name string) (Lease, error)
	PutLease(ctx context.Context, address string, lease Lease) error
	GPUCluster(ctx context.Context, address, node string) (GPUCluster, error)
	PodNetwork(ctx context.Context, address, release string) (PodNetwork, error)
	// KubeProxy is the image of Talos' own kube-proxy; empty = there is none.
	KubeProxy(ctx context.Context, address string) (string, error)
	ApplyObject(ctx context.Context, address string, o *unstructured.Unstructured) (changed bool, err error)
	PruneObjects(ctx context.Context, address, kind string, wanted []*unstructured.Unstructured) (gone []string, err error)

	Close()
}

// New makes the client of a kubeconfig.
func New(text string) (*Client, error) {
	config, err := ParseConfig(text)
	if err != nil {
		return nil, err
	}

	return &Client{config: config, clients: map[string]serverClient{}}, nil
}

func (k *Client) client(address string) (serverClient, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if c, ok := k.clients[address]; ok {
		return c, nil
	}

	endpoint := net.JoinHostPort(address, ServerPort(k.config))
	config := rest.CopyConfig(k.config)
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, endpoint)
	}

	c := serverClient{}

	var err error
	if c.http, err = rest.HTTPClientFor(config); err == nil {
		c.Clientset, err = kubernetes.NewForConfigAndClient(config, c.http)
	}

	if err == nil {
		c.objects, err = dynamic.NewForConfigAndClient(config, c.http)
	}

	if err != nil {
		return c, fmt.Errorf("unable to make a client of the Kubernetes API: %w", err)
	}

	k.clients[address] = c

	return c, nil
}

// Close ends connections, not requests.
func (k *Client) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()

	for address, c := range k.clients {
		c.http.CloseIdleConnections()

		delete(k.clients, address)
	}
}

// askKubernetes asks the API server at an address, within the limit of a call.
func askKubernetes[T any](
	ctx context.Context, k *Client, address string, ask func(context.Context, serverClient) (T, error),
) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, checks.CallTimeout)
	defer cancel()

	c, err := k.client(address)
	if err == nil {
		answer, err = ask(ctx, c)
	}

	return answer, apiError(err)
}

// apiError is an error of a call in the words of its answer, or of the connection: the URL names the shared address,
// which is not the one that was asked.
func apiError(err error) error {
	var (
		status  *apierrors.StatusError
		wrapped *url.Error
	)

	switch {
	case errors.As(err, &status):
		return &answerError{status}
	case errors.As(err, &wrapped):
		return wrapped.Err
	default:
		return err
	}
}

// answerError is a refusal of the Kubernetes API, with its HTTP status.
type answerError struct{ *apierrors.StatusError }

// Error implements error.
func (e *answerError) Error() string {
	text := statusText(e.StatusError)
	if message := messageOf(e.StatusError); message != "" {
		text += ": " + message
	}

	return text
}

// Unwrap is for the functions of apierrors.
func (e *answerError) Unwrap() error { return e.StatusError }

// statusText is 403 Forbidden.
func statusText(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}

	code := int(status.Status().Code)

	return fmt.Sprintf("%d %s", code, http.StatusText(code))
}

// messageOf is what a refusal says: its message, or where it is no Status of Kubernetes its text.
func messageOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}

	if cause, is := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse); is {
		return strings.TrimSuffix(strings.TrimSpace(cause.Message), "unknown") // which is said for no text
	}

	return status.Status().Message
}

// failedChecks picks the lines of /readyz that say what is not ready.
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

// Ready asks an API server whether it is ready; the error names the checks that are not.
func (k *Client) Ready(ctx context.Context, address string) error {
	body, err := k.raw(ctx, address, "/readyz")
	if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return errors.New(statusText(err) + failedChecks(body))
	}

	return err
}

// raw reads what is no resource; what was refused has its text as well.
func (k *Client) raw(ctx context.Context, address, path string) (body []byte, err error) {
	return askKubernetes(ctx, k, address, func(ctx context.Context, c serverClient) ([]byte, error) {
		return c.RESTClient().Get().AbsPath(path).DoRaw(ctx)
	})
}

// APIVersion is the version of Kubernetes that an API server is of.
func (k *Client) APIVersion(ctx context.Context, address string) (string, error) {
	body, err := k.raw(ctx, address, "/version")
	if err != nil {
		return "", err
	}

	var info version.Info
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("unable to read the version: %w", err)
	}

	return info.GitVersion, nil
}
