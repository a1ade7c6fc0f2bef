package components

import (
	"cmp"
	"encoding"
	"fmt"
	"slices"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// Sources of images and templates.
const (
	SourceImage  = string(spec.SourceImage)  // a disk image, from which a template is built in the host's shell
	SourceImport = string(spec.SourceImport) // a disk image, from which a template is built through the API
	SourceISO    = string(spec.SourceISO)    // an ISO from which a machine installs itself; needs the API only
)

type (
	// Talos is the Talos of a machine.
	//
	// Its fields, from their own comments (make schema):
	//   - Version string: The full version of Talos, with its v: v1.14.4.
	//   - Platform string: Talos' platform. Default: nocloud.
	//   - Extensions []string: Official system extensions, by short name (qemu-guest-agent) or in full
	//     (siderolabs/qemu-guest-agent).
	//   - KernelArgs []string: Additional kernel arguments, one per entry, in this order.
	//   - SecureBoot bool: Use images and installers for Secure Boot, which enroll the Image Factory's keys. Default:
	//     false.
	Talos = spec.Talos
	// Encryption are the keys of a node's volumes.
	//
	// Its fields, from their own comments (make schema):
	//   - State string: The key of STATE, which has the machine configuration with the cluster's secrets. `nodeID` =
	//     derived from the UUID of the VM's SMBIOS, against a disk that is read without its VM's configuration; `tpm` =
	//     sealed by the VM's TPM, for a system that was booted with Secure Boot; `static` = the passphrase, which Talos
	//     writes to the unencrypted META partition as well.
	//   - Ephemeral string: The key of EPHEMERAL, which has etcd, images, and logs and data of pods: as for `state`.
	//   - Volumes map[string]string: The keys of user volumes, by the name in the UserVolumeConfig of a patch: as for
	//     `state`.
	//   - Passphrase string: The passphrase of volumes with the key `static`; must be stored encrypted.
	Encryption = spec.Encryption
	// APIServer are the settings of a cluster's API servers.
	//
	// Its fields, from their own comments (make schema):
	//   - OIDC *OIDC: The identity provider whose users may log in, by OpenID Connect. Default: none; only holders of a
	//     kubeconfig or of a ServiceAccount's token.
	//   - AuditPolicy *AuditPolicy: What is written to the audit log of each control plane,
	//     `/var/log/audit/kube/kube-apiserver.log`. Default: Talos' own policy, the metadata of every request.
	//   - PodSecurity *PodSecurity: What pods may do in namespaces whose labels do not say so themselves. Default:
	//     Talos' own, `baseline`.
	APIServer = spec.APIServer
	// OIDC is the identity provider whose users may log in.
	//
	// Its fields, from their own comments (make schema):
	//   - Issuer string: The issuer's address, as in the claim `iss` of its tokens.
	//   - ClientID string: The client that tokens must be issued for (claim `aud`).
	//   - CA string: The certificate authority of the issuer, as PEM. Default: the public ones.
	//   - UsernameClaim string: The claim with the user's name.
	//   - UsernamePrefix string: What users' names begin with in the cluster, so that they are nobody else's; `-` =
	//     nothing.
	//   - GroupsClaim string: The claim with the user's groups.
	//   - GroupsPrefix string: What groups' names begin with in the cluster, so that they are nobody else's; `-` =
	//     nothing.
	//   - RequiredClaims map[string]string: Claims that tokens must have, with their values.
	//   - ClusterRoles map[string][]string: The issuer's groups, without prefix, that have a ClusterRole in the whole
	//     cluster, by ClusterRole.
	OIDC = spec.OIDC
	// AuditPolicy is what is written to the audit log.
	//
	// Its fields, from their own comments (make schema):
	//   - Rules []AuditRule: The rules; the first that matches a request counts. A request that none matches is not
	//     recorded.
	//   - OmitStages []string: Stages of requests that are not recorded.
	//   - OmitManagedFields bool: Omit `managedFields` of objects.
	AuditPolicy = spec.AuditPolicy
	// AuditRule says what is recorded of some requests.
	//
	// Its fields, from their own comments (make schema):
	//   - Level string: What is recorded: nothing, who requested what, also the request's object, or also the
	//     response's.
	//   - Users []string: Users. Default: all.
	//   - UserGroups []string: Groups of users, one of which must have made the request. Default: all.
	//   - Verbs []string: Verbs. Default: all.
	//   - Resources []AuditResources: Resources. Default: all.
	//   - Namespaces []string: Namespaces; an empty text is for objects without a namespace. Default: all.
	//   - NonResourceURLs []string: Paths that are no resources, such as `/healthz*`; not beside `resources` and
	//     `namespaces`.
	//   - OmitStages []string: Stages that are not recorded, in addition to those of the policy.
	//   - OmitManagedFields *bool: Omit `managedFields` of objects. Default: as the policy.
	AuditRule = spec.AuditRule
	// AuditResources are resources of an API group.
	//
	// Its fields, from their own comments (make schema):
	//   - Group string: The API group. Default: the core group.
	//   - Resources []string: The resources, such as `pods`, `pods/exec`, `pods/*` or `*/scale`. Default: all of the
	//     group.
	//   - ResourceNames []string: Names of objects. Default: all.
	AuditResources = spec.AuditResources
	// PodSecurity is what pods may do.
	//
	// Its fields, from their own comments (make schema):
	//   - Enforce string: The standard that pods must meet: `privileged` = none, `baseline` = no known privilege
	//     escalations, `restricted` = hardened.
	//   - ExemptNamespaces []string: Namespaces in which pods may do anything, in addition to `kube-system`.
	PodSecurity = spec.PodSecurity
	// Registries are how nodes pull images.
	//
	// Its fields, from their own comments (make schema):
	//   - Mirrors map[string]RegistryMirror: Mirrors by the registry that they stand in for, such as `docker.io`; `*` =
	//     every registry without one of its own.
	//   - Auth map[string]RegistryAuth: Users by the host of a registry or mirror, with its port if it has one.
	//   - TLS map[string]RegistryTLS: How the certificates of a registry or mirror are verified, by its host, with its
	//     port if it has one. Default: with the public authorities.
	Registries = spec.Registries
	// RegistryMirror are the mirrors of a registry.
	//
	// Its fields, from their own comments (make schema):
	//   - Endpoints []string: The addresses of the mirrors, in the order in which they are tried. `http://` is accepted
	//     only on 127.0.0.0/8.
	//   - SkipFallback bool: Never pull from the registry itself. By default it is tried last.
	//   - OverridePath bool: Use the addresses' paths as they are, without `/v2` at their end.
	RegistryMirror = spec.RegistryMirror
	// RegistryAuth is a user of a registry.
	//
	// Its fields, from their own comments (make schema):
	//   - Username string: The user.
	//   - Password string: The user's password, or a token; must be stored encrypted.
	RegistryAuth = spec.RegistryAuth
	// RegistryTLS is how the certificate of a registry is verified.
	//
	// Its fields, from their own comments (make schema):
	//   - CA string: The certificate authority, as PEM.
	//   - InsecureSkipVerify bool: Accept any certificate.
	RegistryTLS = spec.RegistryTLS
	// Tailscale is the tailnet that nodes join.
	//
	// Its fields, from their own comments (make schema):
	//   - AuthKey string: The key that nodes register with, reusable because each of them does: of Tailscale
	//     (`tskey-auth-…`) or of your own control server; must be stored encrypted.
	//   - LoginServer string: The control server. Default: Tailscale's.
	//   - Tags []string: The tags that nodes request, which the key must allow. Default: those of the key.
	//   - Routes []string: The networks that control planes offer to reach through them, such as the VIP as
	//     `10.0.0.5/32`; the control server must approve them. Default: none.
	Tailscale = spec.Tailscale
	// Firewall is Talos' firewall on all nodes of a cluster.
	//
	// Its fields, from their own comments (make schema):
	//   - Admin []netip.Prefix: The networks of the computers that administer the cluster: they reach the APIs of Talos
	//     and Kubernetes. Default: none.
	//   - KubernetesAPI []netip.Prefix: Further networks that reach the Kubernetes API. Default: none.
	//   - Proxmox *ProxmoxFirewall: Proxmox' own firewall in front of the machines, with the same rules. Default: none.
	Firewall = spec.Firewall
	// ProxmoxFirewall is Proxmox' firewall in front of the machines of a cluster.
	//
	// Its fields, from their own comments (make schema):
	//   - SecurityGroups []string: Security groups of the data centre whose rules the machines get as well. Default:
	//     none.
	ProxmoxFirewall = spec.ProxmoxFirewall
)

func talosWithDefaults(t Talos) Talos {
	t.Platform = cmp.Or(t.Platform, spec.DefaultPlatform)

	return t
}

// problemsOf returns the problems of a component's arguments as an error; nil = none.
func problemsOf(what, name string, found *problem.List) error {
	if len(*found) == 0 {
		return nil
	}

	return fmt.Errorf("%s %q: %w", what, name, *found)
}

// required reports a text that is missing.
func required(found *problem.List, path, value, remedy string) {
	if value == "" {
		found.Add(path, nil, "is missing; set %s", remedy)
	}
}

// textOf returns an address or network as text; empty = it is not set.
func textOf(value encoding.TextMarshaler) string {
	text, _ := value.MarshalText() // those of [net/netip] have no errors

	return string(text)
}

// requiredAddress reports an address or network that is missing.
func requiredAddress(found *problem.List, path string, value interface{ IsValid() bool }, remedy string) {
	if !value.IsValid() {
		found.Add(path, nil, "is missing; set %s", remedy)
	}
}

func checkVersion(found *problem.List, path, value string) {
	if _, err := talos.ReleaseOf(value); err != nil {
		found.Add(path, value, "cannot be used: %s", err)
	}
}

func checkSource(found *problem.List, path, value string) {
	if !slices.Contains([]string{SourceImage, SourceImport, SourceISO}, value) {
		found.Add(path, value, "is not a source; choose %s", spec.Sources)
	}
}
