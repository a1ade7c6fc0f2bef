package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"talos-proxmox/talosops/kube"
)

// callTimeout bounds one call of the Kubernetes API.
const callTimeout = 30 * time.Second

// cluster is a client of the Kubernetes API. It implements Helm's RESTClientGetter.
type cluster struct {
	config    *rest.Config
	raw       clientcmd.ClientConfig
	dynamic   dynamic.Interface
	discovery discovery.CachedDiscoveryInterface
	mapper    meta.ResettableRESTMapper
}

// newCluster drops the parser's errors, which quote the kubeconfig.
func newCluster(kubeconfig string, endpoints []netip.Addr) (*cluster, error) {
	config, err := kube.ParseConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}

	raw, err := clientcmd.NewClientConfigFromBytes([]byte(kubeconfig))
	if err != nil {
		return nil, kube.ErrKubeconfig
	}

	config.Timeout = callTimeout

	if len(endpoints) > 0 {
		config.Dial = dialFirst(endpoints)
	}

	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("unable to create a client of the Kubernetes API: %w", err)
	}

	uncached, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("unable to create a client of the Kubernetes API: %w", err)
	}

	cached := memory.NewMemCacheClient(uncached)

	return &cluster{
		config: config, raw: raw, dynamic: client, discovery: cached,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(cached),
	}, nil
}

// dialFirst returns a dialer that connects to the first of these control planes that responds. TLS still verifies the
// name of the kubeconfig's server, which is in each control plane's certificate.
func dialFirst(endpoints []netip.Addr) func(context.Context, string, string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: callTimeout / 3}

	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var problems []error

		for _, endpoint := range endpoints {
			conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(endpoint.String(), kube.Port))
			if err == nil {
				return conn, nil
			}

			problems = append(problems, err)
		}

		return nil, errors.Join(problems...)
	}
}

// ToRESTConfig implements RESTClientGetter.
func (c *cluster) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(c.config), nil }

// ToDiscoveryClient implements RESTClientGetter.
func (c *cluster) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return c.discovery, nil
}

// ToRESTMapper implements RESTClientGetter.
func (c *cluster) ToRESTMapper() (meta.RESTMapper, error) { return c.mapper, nil }

// ToRawKubeConfigLoader implements RESTClientGetter. Helm reads the namespace from it.
func (c *cluster) ToRawKubeConfigLoader() clientcmd.ClientConfig { return c.raw }

// withNamespace returns a copy of the client with this default namespace for a chart's objects.
func (c *cluster) withNamespace(namespace string) (*cluster, error) {
	raw, err := c.raw.RawConfig()
	if err != nil {
		return nil, err
	}

	scoped := *c
	scoped.raw = clientcmd.NewDefaultClientConfig(raw, &clientcmd.ConfigOverrides{
		Context: clientcmdapi.Context{Namespace: namespace},
	})

	return &scoped, nil
}
