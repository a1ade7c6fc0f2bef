package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
	machineconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// writeConfigs writes the API server's configuration files.
func (h Host) writeConfigs() error {
	plugins := []any{}

	for _, p := range h.Config.K8sAdmissionControlPluginConfigs() {
		plugins = append(plugins, map[string]any{"name": p.Name(), "configuration": p.Configuration()})
	}

	policy := v1alpha1.APIServerDefaultAuditPolicy.Object
	if configured := h.Config.K8sAuditPolicyConfig(); configured != nil {
		policy = configured.Configuration()
	}

	var authentication map[string]any
	if configured := h.Config.K8sAuthenticationConfig(); configured != nil {
		authentication = configured.Configuration()
	}

	return errors.Join(
		h.writeAPIServerConfig("admission", "AdmissionConfiguration", map[string]any{"plugins": plugins}),
		h.writeAPIServerConfig("authorization", "AuthorizationConfiguration", map[string]any{"authorizers": authorizers(h.Config)}),
		h.writeAPIServerConfig("authentication", "AuthenticationConfiguration", authentication),
		h.writeAPIServerConfig("encryption", "EncryptionConfiguration", encryption(h.Config)),
		h.writeJSON("config/audit-policy.json", policy),
	)
}

// authorizers returns the authorizers of the configuration, after those that Talos adds unless the configuration
// disables it (internal/app/machined/pkg/controllers/k8s/control_plane.go of Talos 1.14).
func authorizers(cfg config.Provider) []any {
	var (
		list       []any
		configured = cfg.K8sAuthorizerConfigs()
	)

	for _, authorizer := range v1alpha1.APIServerDefaultAuthorizationConfigAuthorizers {
		if cfg.K8sAPIServerConfig().InjectDefaultAuthorizers() &&
			!slices.ContainsFunc(configured, func(a machineconfig.K8sAuthorizerConfig) bool {
				return a.Type() == authorizer.Type
			}) {
			list = append(list, map[string]any{"type": authorizer.Type, "name": authorizer.Name})
		}
	}

	for _, a := range configured {
		authorizer := map[string]any{"type": a.Type(), "name": a.Name()}
		if len(a.Webhook()) > 0 {
			authorizer["webhook"] = a.Webhook()
		}

		list = append(list, authorizer)
	}

	return list
}

// encryption returns how the API server encrypts data in etcd.
func encryption(cfg config.Provider) map[string]any {
	if configured := cfg.K8sEtcdEncryptionConfig(); configured != nil {
		return configured.EtcdEncryptionConfig()
	}

	providers := []any{}

	for _, p := range []struct{ kind, key, secret string }{
		{"secretbox", "key2", cfg.Cluster().SecretboxEncryptionSecret()},
		{"aescbc", "key1", cfg.Cluster().AESCBCEncryptionSecret()},
	} {
		if p.secret != "" {
			providers = append(providers, map[string]any{p.kind: map[string]any{"keys": []any{map[string]any{
				"name":   p.key,
				"secret": p.secret,
			}}}})
		}
	}

	providers = append(providers, map[string]any{"identity": map[string]any{}})

	return map[string]any{"resources": []any{map[string]any{"resources": []any{"secrets"}, "providers": providers}}}
}

// writeAPIServerConfig writes a configuration file of the group apiserver.config.k8s.io.
func (h Host) writeAPIServerConfig(name, kind string, settings map[string]any) error {
	content := map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": kind}
	maps.Copy(content, settings)

	return h.writeJSON("config/"+name+".json", content)
}

func (h Host) writeJSON(name string, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("unable to write %s: %w", name, err)
	}

	return h.write(name, text)
}
