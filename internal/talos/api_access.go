package talos

import (
	"fmt"
	"slices"
	"strings"
)

// healthEndpoints are what Talos lets anonymous requests reach in clusters of contract 1.14, for the kubelet's probes
// of the API server (internal/app/machined/pkg/controllers/k8s/internal/k8stemplates/apiserver.go).
var healthEndpoints = []string{"/livez", "/readyz", "/healthz"}

// OpensAPIServer returns the parts of a patch with which the API server accepts more than Talos lets it: anonymous
// requests beyond its health, or weaker TLS. Talos 1.12 and 1.13 use TLS 1.2 with AEAD ciphers
// (internal/app/machined/pkg/controllers/k8s/control_plane_static_pod.go), 1.14 uses TLS 1.3 and refuses another
// version (control_plane_final.go).
func OpensAPIServer(patch string) (parts []string) {
	for _, document := range patchDocuments(patch) {
		for _, arguments := range []string{"cluster.apiServer.extraArgs", "KubeAPIServerConfig.extraArgs"} {
			for argument, closed := range map[string][]string{
				"anonymous-auth":    {"false"},
				"tls-min-version":   {"VersionTLS12", "VersionTLS13"},
				"tls-cipher-suites": nil,
			} {
				path := arguments + "." + argument

				value, sets := valueAt(byKind(document), strings.Split(path, "."))
				if sets && !slices.Contains(closed, fmt.Sprint(value)) {
					parts = append(parts, path)
				}
			}
		}

		const authentication = "KubeAuthenticationConfig.configuration"

		configuration, sets := valueAt(byKind(document), strings.Split(authentication, "."))
		if sets && !keepsAnonymousOut(configuration) {
			parts = append(parts, authentication)
		}
	}

	slices.Sort(parts)

	return parts
}

// keepsAnonymousOut reports whether an AuthenticationConfiguration, which replaces Talos' own as a whole, lets
// anonymous requests reach nothing but the API server's health. Without a word about them, it accepts them
// (k8s.io/kubernetes v1.37, pkg/kubeapiserver/options/authentication.go).
func keepsAnonymousOut(configuration any) bool {
	if enabled, _ := valueAt(configuration, []string{"anonymous", "enabled"}); enabled == false {
		return true
	}

	conditions, _ := valueAt(configuration, []string{"anonymous", "conditions"})
	list, _ := conditions.([]any)

	return len(list) > 0 && !slices.ContainsFunc(list, func(condition any) bool {
		path, _ := valueAt(condition, []string{"path"})

		return !slices.Contains(healthEndpoints, fmt.Sprint(path))
	})
}
