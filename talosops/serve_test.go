package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stretchr/testify/require"
)

// testVIP is in certificates and the kubeconfig; nothing listens there, as before the VIP is up.
const testVIP = "127.250.250.250"

// startNode serves the Talos and the Kubernetes API of one control plane on its own loopback address, and returns
// the address and the port of the Kubernetes API.
func startNode(t *testing.T, talos, kubernetes *authority, handler http.Handler) (address, port string) {
	t.Helper()

	return startNodeOf(t, &talosNode{name: "cp-1"}, talos, kubernetes, handler)
}

// serveKubernetes serves the Kubernetes API of a control plane, and returns its clients and its address.
func serveKubernetes(t *testing.T, handler http.Handler) (clients *kubernetesClients, address string) {
	t.Helper()

	authority := newAuthority(t)
	address, port := startNode(t, newAuthority(t), authority, handler)
	clients, err := newKubernetesAPI(authority.kubeconfig(t, "https://"+net.JoinHostPort(testVIP, port)))
	require.NoError(t, err)

	return clients, address
}

func startNodeOf(
	t *testing.T, n *talosNode, talos, kubernetes *authority, handler http.Handler,
) (address, port string) {
	t.Helper()

	address = serveTalos(t, talos, n)
	// Only the shared address is in this certificate: verification must use the kubeconfig's name.
	api, err := tls.Listen("tcp", address+":0", kubernetes.serverTLS(t, testVIP))
	require.NoError(t, err)

	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		handler.ServeHTTP(w, r)
	})}

	go func() { _ = web.Serve(api) }()

	t.Cleanup(func() { _ = web.Close() })

	_, port, err = net.SplitHostPort(api.Addr().String())
	require.NoError(t, err)

	return address, port
}

// refuse answers what an API server refuses.
func refuse(w http.ResponseWriter, status metav1.Status) {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	status.Status = metav1.StatusFailure

	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

func healthyAPI() *http.ServeMux {
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
