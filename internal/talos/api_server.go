package talos

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/types/k8s"
)

// APIServer are the settings of a cluster's API servers; empty = those that Talos generates.
type APIServer struct {
	OIDC *OIDC
	// AuditPolicy is the content of Kubernetes' audit policy, without its kind.
	AuditPolicy map[string]any
	PodSecurity *PodSecurity
}

// OIDC is the identity provider whose users may log in.
type OIDC struct {
	// Issuer is its URL, ClientID the audience of its tokens, and CA its authority, as PEM; empty = the public ones.
	Issuer, ClientID, CA string
	// The claims with names, and the prefixes of names in the cluster, which may be empty.
	UsernameClaim, UsernamePrefix, GroupsClaim, GroupsPrefix string
	// RequiredClaims are claims that tokens must have, with their values.
	RequiredClaims map[string]string
}

// PodSecurity is the standard of pods in namespaces without labels for it.
type PodSecurity struct {
	// Enforce is privileged, baseline or restricted.
	Enforce string
	// ExemptNamespaces are exempt beside kube-system, which the generated configuration has.
	ExemptNamespaces []string
}

// podSecurityPlugin is the admission plugin of Pod Security.
const podSecurityPlugin = "PodSecurity"

// configuration returns what differs from the configuration that Talos generates, to be merged into it.
func (s PodSecurity) configuration() object {
	configuration := object{"defaults": object{"enforce": s.Enforce}}
	if len(s.ExemptNamespaces) > 0 {
		configuration["exemptions"] = object{"namespaces": s.ExemptNamespaces}
	}

	return configuration
}

// auditPolicy returns a policy with its kind.
func auditPolicy(content map[string]any) object {
	policy := object{"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
	maps.Copy(policy, content)

	return policy
}

// caFile is the issuer's authority on control planes whose API server reads it from a file.
const caFile = "/var/etc/kube-apiserver-oidc/ca.pem"

// flags returns an identity provider as flags of the API server.
func (o OIDC) flags() object {
	flags := object{
		"oidc-issuer-url": o.Issuer, "oidc-client-id": o.ClientID,
		"oidc-username-claim": o.UsernameClaim, "oidc-username-prefix": o.UsernamePrefix,
		"oidc-groups-claim": o.GroupsClaim, "oidc-groups-prefix": o.GroupsPrefix,
	}
	if o.UsernamePrefix == "" {
		flags["oidc-username-prefix"] = "-"
	}

	if o.CA != "" {
		flags["oidc-ca-file"] = caFile
	}

	claims := make([]string, 0, len(o.RequiredClaims))
	for _, claim := range slices.Sorted(maps.Keys(o.RequiredClaims)) {
		claims = append(claims, claim+"="+o.RequiredClaims[claim])
	}

	switch len(claims) {
	case 0:
	case 1:
		flags["oidc-required-claim"] = claims[0]
	default:
		flags["oidc-required-claim"] = claims
	}

	return flags
}

// authentication returns an identity provider as structured configuration, beside what Talos has there by default:
// anonymous requests to the health endpoints.
func (o OIDC) authentication() object {
	issuer := object{"url": o.Issuer, "audiences": []string{o.ClientID}}
	if o.CA != "" {
		issuer["certificateAuthority"] = o.CA
	}

	provider := object{"issuer": issuer, "claimMappings": object{
		"username": object{"claim": o.UsernameClaim, "prefix": o.UsernamePrefix},
		"groups":   object{"claim": o.GroupsClaim, "prefix": o.GroupsPrefix},
	}}

	var rules []object
	for _, claim := range slices.Sorted(maps.Keys(o.RequiredClaims)) {
		rules = append(rules, object{"claim": claim, "requiredValue": o.RequiredClaims[claim]})
	}

	if len(rules) > 0 {
		provider["claimValidationRules"] = rules
	}

	configuration := k8s.DefaultAuthenticationConfig().AuthConfig.Object
	configuration["jwt"] = []object{provider}

	return configuration
}

// apiServer uses flags, which change without a restart of the machine: before contract 1.14 the structured
// configuration is a file, which Talos writes only at boot. An authority has no other place.
func (v1alpha1Form) apiServer(a APIServer) (docs []object) {
	server := object{}

	if o := a.OIDC; o != nil {
		server["extraArgs"] = o.flags()

		if o.CA != "" {
			directory := path.Dir(caFile)
			server["extraVolumes"] = []object{{"hostPath": directory, "mountPath": directory, "readonly": true}}

			docs = append(docs, object{"machine": object{"files": []object{{
				"op": "create", "path": caFile, "permissions": 0o644, "content": o.CA,
			}}}})
		}
	}

	if a.AuditPolicy != nil {
		server["auditPolicy"] = auditPolicy(a.AuditPolicy)
	}

	if a.PodSecurity != nil {
		server["admissionControl"] = []object{{"name": podSecurityPlugin, "configuration": a.PodSecurity.configuration()}}
	}

	if len(server) > 0 {
		docs = append(docs, object{"cluster": object{"apiServer": server}})
	}

	return docs
}

func (documentForm) apiServer(a APIServer) (docs []object) {
	if a.OIDC != nil {
		docs = append(docs, document("KubeAuthenticationConfig", object{"configuration": a.OIDC.authentication()}))
	}

	if a.AuditPolicy != nil {
		docs = append(docs, document("KubeAuditPolicyConfig", object{"configuration": auditPolicy(a.AuditPolicy)}))
	}

	if a.PodSecurity != nil {
		docs = append(docs, document("KubeAdmissionControlConfig", object{
			"name": podSecurityPlugin, "configuration": a.PodSecurity.configuration(),
		}))
	}

	return docs
}

// checkBesideKeys returns why a patch conflicts with keys of the stack file although it changes nothing that follows
// from them, or nil.
func checkBesideKeys(c ClusterConfig, patch string) error {
	arguments := []struct {
		set           bool
		argument, key string
	}{
		{c.APIServer.OIDC != nil, "authentication-config", "apiServer.oidc"},
		{c.APIServer.AuditPolicy != nil, "audit-policy-file", "apiServer.auditPolicy"},
		{c.APIServer.PodSecurity != nil, "admission-control-config-file", "apiServer.podSecurity"},
	}

	var problems []error

	for _, document := range patchDocuments(patch) {
		sets := func(part string) bool {
			_, exists := valueAt(byKind(document), strings.Split(part, "."))

			return exists
		}

		for _, a := range arguments {
			for _, part := range []string{"cluster.apiServer.extraArgs." + a.argument, "KubeAPIServerConfig.extraArgs." + a.argument} {
				if a.set && sets(part) {
					problems = append(problems, fmt.Errorf("it sets %s, which excludes %s in the stack file: remove one of the two",
						part, a.key))
				}
			}
		}

		if !c.Registries.empty() && sets("machine.registries") {
			problems = append(problems, errors.New("it sets machine.registries, which has another form than registries in the "+
				"stack file: remove that part, and set it there, or write it as RegistryMirrorConfig, RegistryAuthConfig and "+
				"RegistryTLSConfig"))
		}
	}

	return errors.Join(problems...)
}
