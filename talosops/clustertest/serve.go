package clustertest

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/talosops/kube"
)

// VIP is in certificates and the kubeconfig; nothing listens there, as before the VIP is up.
const VIP = "127.250.250.250"

// StartNode serves the Talos and the Kubernetes API of one control plane on its own loopback address, and returns
// the address and the port of the Kubernetes API.
func StartNode(t *testing.T, talos, kubernetes *Authority, handler http.Handler) (address, port string) {
	t.Helper()

	return StartNodeOf(t, &TalosNode{Name: "cp-1"}, talos, kubernetes, handler)
}

// ServeKubernetes serves the Kubernetes API of a control plane, and returns its clients and its address.
func ServeKubernetes(t *testing.T, handler http.Handler) (clients *kube.Client, address string) {
	t.Helper()

	authority := NewAuthority(t)
	address, port := StartNode(t, NewAuthority(t), authority, handler)
	clients, err := kube.New(authority.Kubeconfig(t, "https://"+net.JoinHostPort(VIP, port)))
	require.NoError(t, err)

	return clients, address
}

// StartNodeOf is StartNode with a machine of its own.
func StartNodeOf(
	t *testing.T, n *TalosNode, talos, kubernetes *Authority, handler http.Handler,
) (address, port string) {
	t.Helper()

	address = ServeTalos(t, talos, n)
	// Only the shared address is in this certificate: verification must use the kubeconfig's name.
	api, err := tls.Listen("tcp", address+":0", kubernetes.ServerTLS(t, VIP))
	require.NoError(t, err)

	answer := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		handler.ServeHTTP(w, r)
	}
	web := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(answer)}

	go func() { _ = web.Serve(api) }()

	t.Cleanup(func() { _ = web.Close() })

	_, port, err = net.SplitHostPort(api.Addr().String())
	require.NoError(t, err)

	return address, port
}

// Refuse answers what an API server refuses.
func Refuse(w http.ResponseWriter, status metav1.Status) {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	status.Status = metav1.StatusFailure

	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

// HealthyAPI is the Kubernetes API of a cluster of one control plane.
func HealthyAPI() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "ok") })
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"major":"1","gitVersion":"v1.35.1"}`)
	})
	mux.HandleFunc("/api/v1/nodes", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"kind":"NodeList","items":[{"metadata":{"name":"cp-1"},"status":{
			"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":"True"}],"nodeInfo":{"kubeletVersion":"v1.35.0"}}}]}`)
	})

	return mux
}
