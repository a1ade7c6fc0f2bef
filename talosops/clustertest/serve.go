package clustertest

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/kube"
)

// VIP is the address in certificates and the kubeconfig. Nothing listens on it, as before a real VIP is up.
const VIP = "127.250.250.250"

// Served is a control plane whose Talos and Kubernetes APIs are served on its own loopback address, with the
// administrator's credentials.
type Served struct {
	request.Common

	Address, Talosconfig, Kubeconfig string
}

// Serve serves both APIs of the control plane cp-1.
func Serve(t *testing.T, n *TalosNode, api http.Handler) Served {
	t.Helper()

	n.Name = "cp-1"
	talos, kubernetes := NewAuthority(t), NewAuthority(t)
	address := ServeTalos(t, talos, n)
	// The certificate has only the shared address: clients must verify the name in the kubeconfig.
	listener, err := tls.Listen("tcp", address+":0", kubernetes.ServerTLS(t, VIP))
	require.NoError(t, err)

	web := &http.Server{ReadHeaderTimeout: time.Minute, Handler: api}

	go func() { _ = web.Serve(listener) }()

	t.Cleanup(func() { _ = web.Close() })

	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)

	n.KubeconfigText = kubernetes.Kubeconfig(t, "https://"+net.JoinHostPort(VIP, port))

	return Served{
		Common:  request.Common{ControlPlanes: []request.Node{{Name: n.Name, Address: address}}},
		Address: address, Talosconfig: talos.Talosconfig(t), Kubeconfig: n.KubeconfigText,
	}
}

// ServeKubernetes serves the Kubernetes API of a control plane, and returns a client and its address.
func ServeKubernetes(t *testing.T, api http.Handler) (client *kube.Client, address string) {
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
