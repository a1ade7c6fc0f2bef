package clustertest

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/kube"
)

// Endpoint is the server in the kubeconfig, which resolves to nothing: a load balancer that does not exist yet.
const Endpoint = "https://" + endpointName + ":443"

const endpointName = "api.example.invalid"

// Served is a control plane whose Talos and Kubernetes APIs are served on its own loopback address, with the
// administrator's credentials.
type Served struct {
	request.Common

	Address                 netip.Addr
	Talosconfig, Kubeconfig string
}

// Serve serves both APIs of the control plane cp-1.
func Serve(t *testing.T, n *TalosNode, api http.Handler) Served {
	t.Helper()

	n.Name = "cp-1"
	talos, kubernetes := NewAuthority(t), NewAuthority(t)
	address := ServeTalos(t, talos, n)
	config := kubernetes.ServerTLS(t, address.String(), endpointName)
	listener, err := tls.Listen("tcp", net.JoinHostPort(address.String(), kube.Port), config)
	require.NoError(t, err)

	web := &http.Server{ReadHeaderTimeout: time.Minute, Handler: api}

	go func() { _ = web.Serve(listener) }()

	t.Cleanup(func() { _ = web.Close() })

	n.KubeconfigText = kubernetes.Kubeconfig(t, Endpoint)

	return Served{
		Common:  request.Common{ControlPlanes: []request.Node{{Name: n.Name, Address: address}}},
		Address: address, Talosconfig: talos.Talosconfig(t), Kubeconfig: n.KubeconfigText,
	}
}

// ServeKubernetes serves the Kubernetes API of a control plane, and returns a client and its address.
func ServeKubernetes(t *testing.T, api http.Handler) (client *kube.Client, address netip.Addr) {
	t.Helper()

	served := Serve(t, &TalosNode{}, api)
	client, err := kube.New(served.Kubeconfig)
	require.NoError(t, err)

	return client, served.Address
}

// HealthyAPI returns the Kubernetes API of a cluster with one control plane.
func HealthyAPI() *API {
	return NewAPI(map[string]string{"/api/v1/nodes/cp-1": `{"kind":"Node","apiVersion":"v1","metadata":{"name":"cp-1"},"status":{
		"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":"True"}],
		"nodeInfo":{"kubeletVersion":"v1.35.0"}}}`})
}
