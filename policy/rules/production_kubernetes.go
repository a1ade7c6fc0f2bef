package rules

import (
	"net/netip"
	"net/url"
	"slices"

	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// podSecurity refuses control planes whose API server enforces no Pod Security Standard.
func podSecurity(p plan) problem.List {
	type plugin struct {
		Name          string
		Configuration struct{ Defaults struct{ Enforce string } }
	}

	return requireOfControlPlanes(
		p, "pods may do anything: set apiServer.podSecurity.enforce of its cluster to baseline, and remove a patch that deletes PodSecurity",
		func(documents []yaml.Node) bool {
			for _, document := range documents {
				var config struct {
					plugin  `yaml:",inline"`
					Kind    string
					Cluster struct {
						APIServer struct {
							Plugins []plugin `yaml:"admissionControl"`
						} `yaml:"apiServer"`
					}
				}
				if document.Decode(&config) != nil {
					continue
				}

				plugins := config.Cluster.APIServer.Plugins
				if config.Kind == "KubeAdmissionControlConfig" {
					plugins = append(plugins, config.plugin)
				}

				if slices.ContainsFunc(plugins, func(p plugin) bool {
					return p.Name == "PodSecurity" && p.Configuration.Defaults.Enforce != "privileged"
				}) {
					return true
				}
			}

			return false
		},
	)
}

// auditLog refuses control planes whose API server records nothing.
func auditLog(p plan) problem.List {
	type policy struct{ Rules []struct{ Level string } }

	return requireOfControlPlanes(
		p, "its API server records no requests: set a rule of apiServer.auditPolicy of its cluster to Metadata, or remove the policy",
		func(documents []yaml.Node) bool {
			for _, document := range documents {
				var config struct {
					Kind          string
					Configuration policy
					Cluster       struct {
						APIServer struct {
							Policy policy `yaml:"auditPolicy"`
						} `yaml:"apiServer"`
					}
				}
				if document.Decode(&config) != nil {
					continue
				}

				rules := config.Cluster.APIServer.Policy.Rules
				if config.Kind == "KubeAuditPolicyConfig" {
					rules = append(rules, config.Configuration.Rules...)
				}

				for _, rule := range rules {
					if rule.Level != "None" {
						return true
					}
				}
			}

			return false
		},
	)
}

// apiAccess refuses control planes whose API server answers whoever asks.
func apiAccess(p plan) problem.List {
	return requireOfControlPlanes(
		p, "its API server lets in what Talos keeps out: remove patches with anonymous-auth and tls-*, and give KubeAuthenticationConfig "+
			"the conditions of docs/api-server.md",
		func(documents []yaml.Node) bool {
			return !slices.ContainsFunc(documents, func(document yaml.Node) bool {
				text, err := yaml.Marshal(&document)

				return err == nil && len(talos.OpensAPIServer(string(text))) > 0
			})
		},
	)
}

// requireOfControlPlanes is [requireDocument] for control planes.
func requireOfControlPlanes(p plan, message string, satisfies func([]yaml.Node) bool) problem.List {
	return requireDocument(p, message, func(documents []yaml.Node) bool {
		return satisfies(documents) || !slices.ContainsFunc(documents, func(document yaml.Node) bool {
			var config struct{ Machine struct{ Type string } }

			return document.Decode(&config) == nil && config.Machine.Type == "controlplane"
		})
	})
}

// verifiedRegistries refuses nodes that pull images from whoever answers.
func verifiedRegistries(p plan) problem.List {
	return requireDocument(
		p, "images come from whoever answers in a registry's place: set ca instead of insecureSkipVerify, and https:// for mirrors, in registries of its cluster",
		func(documents []yaml.Node) bool {
			for _, document := range documents {
				var config struct {
					Kind      string
					Insecure  bool `yaml:"insecureSkipVerify"`
					Endpoints []struct{ URL string }
					Machine   struct {
						Registries struct {
							Mirrors map[string]struct{ Endpoints []string }
							Config  map[string]struct {
								TLS struct {
									Insecure bool `yaml:"insecureSkipVerify"`
								}
							}
						}
					}
				}
				if document.Decode(&config) != nil {
					continue
				}

				var mirrors []string

				insecure := config.Kind == "RegistryTLSConfig" && config.Insecure

				if config.Kind == "RegistryMirrorConfig" {
					for _, endpoint := range config.Endpoints {
						mirrors = append(mirrors, endpoint.URL)
					}
				}

				for _, mirror := range config.Machine.Registries.Mirrors {
					mirrors = append(mirrors, mirror.Endpoints...)
				}

				for _, registry := range config.Machine.Registries.Config {
					insecure = insecure || registry.TLS.Insecure
				}

				if insecure || slices.ContainsFunc(mirrors, isUnencrypted) {
					return false
				}
			}

			return true
		},
	)
}

// isUnencrypted reports whether a URL leads over a network without TLS.
func isUnencrypted(text string) bool {
	mirror, err := url.Parse(text)
	if err != nil || mirror.Scheme != "http" {
		return false
	}

	address, err := netip.ParseAddr(mirror.Hostname())

	return err != nil || !address.IsLoopback()
}
