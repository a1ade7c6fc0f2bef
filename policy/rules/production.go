package rules

import (
	"cmp"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/tokens"
)

func productionPolicies() []policy {
	return []policy{
		{
			Name:        "production-protection",
			Description: "In production, control planes, Talos secrets and the bootstrap are protected.",
			Reason:      "Deleting them destroys the cluster. `talos-proxmox:protect: true` protects all of them.",
			Stack:       inProduction(productionProtection),
		},
		{
			Name:        "production-tls",
			Description: "In production, TLS certificates of the Proxmox API and of downloads are verified.",
			Reason:      "Without verification, anyone in the network path can read the API token.",
			Stack:       inProduction(productionTLS),
		},
		{
			Name:        "production-host-keys",
			Description: "In production, the SSH host keys of hosts are verified.",
			Reason: "Templates are built and hosts prepared as root: with `ssh.acceptAnyHostKey` any machine with a host's address would receive " +
				"the scripts, and its answers would be trusted.",
			Stack: inProduction(productionHostKeys),
		},
		{
			Name:        "production-endpoint",
			Description: "In production, the endpoint of a cluster with several control planes is not one of them.",
			Reason: "Otherwise kubeconfigs stop working with that control plane. Advisory, because what `clusters[].endpoint`, a name or a load " +
				"balancer, leads to is not known; without it, `network.vip` moves to another control plane.",
			Advisory: true,
			Stack:    inProduction(productionEndpoint),
		},
		{
			Name:        "production-disk-encryption",
			Description: "In production, disks of Talos nodes are encrypted.",
			Reason: "STATE holds the machine's keys, EPHEMERAL the data of everything that runs on it. Advisory, because it is decided when machines " +
				"are created: `clusters[].encryption` (docs/encryption.md).",
			Advisory: true,
			Stack:    inProduction(diskEncryption),
		},
		{
			Name:        "production-talos-firewall",
			Description: "In production, Talos' firewall blocks everything that no rule allows.",
			Reason: "Otherwise Talos' API and etcd are open to the whole network. Advisory, because only you know who administers the cluster: " +
				"`clusters[].firewall` (docs/networking.md).",
			Advisory: true,
			Stack:    inProduction(talosFirewall),
		},
		{
			Name:        "production-pod-security",
			Description: "In production, pods must meet a Pod Security Standard.",
			Reason: "Otherwise whoever may create a pod in any namespace becomes root on its node. Advisory, because namespaces can have labels of their " +
				"own: `clusters[].apiServer.podSecurity.enforce`.",
			Advisory: true,
			Stack:    inProduction(podSecurity),
		},
		{
			Name:        "production-audit-log",
			Description: "In production, the API servers record requests.",
			Reason: "Without an audit log nobody knows who changed what. Advisory, because a proxy in front of the API may record them: " +
				"`clusters[].apiServer.auditPolicy`; Talos records the metadata of every request by default.",
			Advisory: true,
			Stack:    inProduction(auditLog),
		},
		{
			Name:        "production-api-access",
			Description: "In production, the API servers keep requests without credentials and weak TLS out, as Talos does.",
			Reason: "Otherwise anybody who reaches them learns about the cluster, or more where a role is bound to `system:unauthenticated`. Advisory, " +
				"because the cluster's issuer may be public: patches with `anonymous-auth`, `KubeAuthenticationConfig` or `tls-*` (docs/api-server.md).",
			Advisory: true,
			Stack:    inProduction(apiAccess),
		},
		{
			Name:        "production-registries",
			Description: "In production, registries and mirrors of images are verified.",
			Reason: "Otherwise anybody in the network path can replace images, and read passwords. Advisory, because images can be pinned by digest: " +
				"`clusters[].registries.tls` has authorities of registries.",
			Advisory: true,
			Stack:    inProduction(verifiedRegistries),
		},
		{
			Name:        "production-chart-digests",
			Description: "In production, the chart of Flux' operator is the one whose digest the stack file states.",
			Reason: "The operator is an administrator of the cluster, and a tag in a registry can be moved. Advisory, because the program knows no " +
				"default: `clusters[].gitops.operator.digest` states it (docs/platform.md).",
			Advisory: true,
			Stack:    inProduction(chartDigests),
		},
	}
}

// gitOpsCommand matches the command that installs Flux.
var gitOpsCommand = regexp.MustCompile(`talosops\S*(\s.*)?\sgitops(\s|$)`)

func chartDigests(p plan) problem.List {
	var found problem.List

	for _, r := range p.ofType(tokens.LocalCommand) {
		var request struct{ Chart, ChartVersion, ChartDigest string }

		stdin := r.at("stdin").text()
		if !gitOpsCommand.MatchString(r.at("create").text().Value) || !stdin.Known {
			continue
		}

		err := json.Unmarshal([]byte(stdin.Value), &request)
		if err != nil || request.Chart == "" || request.ChartDigest != "" {
			continue
		}

		found = append(found, violation(r.URN, r.Name,
			"%s:%s is installed whatever its digest is: state it in gitops.operator.digest, as the run prints it or `crane digest` does",
			request.Chart, request.ChartVersion))
	}

	return found
}

// inProduction limits a check to production stacks.
func inProduction(check func(plan) problem.List) func(plan) problem.List {
	return func(p plan) problem.List {
		if !p.Production {
			return nil
		}

		return check(p)
	}
}

// bootstrapCommand matches commands that bootstrap etcd: with talosops here, with talosctl elsewhere.
var bootstrapCommand = regexp.MustCompile(`talos(ops|ctl)\S*(\s.*)?\sbootstrap(\s|$)`)

func productionProtection(p plan) problem.List {
	var found problem.List

	check := func(r resource, what string) {
		if !r.Protect {
			found = append(found, violation(r.URN, r.Name,
				"%s of stack %s, a production one, is not protected: set talos-proxmox:protect to true (or the resource option protect)",
				what, p.Stack))
		}
	}

	for _, c := range p.controlPlanes() {
		for _, m := range c.Machines {
			check(m.resource, "control plane")
		}
	}

	for _, r := range p.ofType(tokens.Secrets) {
		check(r, "Talos secrets")
	}

	for _, r := range p.ofType(tokens.Bootstrap) {
		check(r, "bootstrap")
	}

	for _, r := range p.ofType(tokens.LocalCommand) {
		if bootstrapCommand.MatchString(r.at("create").text().Value) {
			check(r, "bootstrap")
		}
	}

	return found
}

func productionTLS(p plan) problem.List {
	var found problem.List

	for _, r := range p.ofType(tokens.ProxmoxProvider) {
		if equals(r.at("insecure").flag(), true) {
			found = append(found, violation(r.URN, "provider "+r.Name,
				"insecure is true: remove proxmoxve:insecure, and give the host a certificate of a CA that this computer trusts"))
		}
	}

	for _, r := range p.ofType(tokens.File) {
		if verify := r.at("verify"); !verify.isAbsent() && equals(verify.flag(), false) {
			found = append(found, violation(r.URN, r.Name,
				"verify is false, so the host does not verify TLS certificates: leave it out"))
		}
	}

	return found
}

func productionHostKeys(p plan) problem.List {
	var found problem.List

	for _, r := range p.ofType(tokens.RemoteCommand) {
		connection := r.at("connection")
		if key := connection.at("hostKey"); !connection.isUnknown() && equals(key.text(), "") {
			found = append(found, violation(r.URN, r.Name,
				"any key of the host is accepted: set ssh.hostKey of the host in place of ssh.acceptAnyHostKey, with the key that `ssh-keyscan -t ed25519` prints and the host's own console confirms"))
		}
	}

	return found
}

// productionEndpoint compares the endpoints in the configurations of control planes with the addresses in them.
func productionEndpoint(p plan) problem.List {
	type machine struct {
		resource

		cluster, endpoint string
		addresses         []string
	}

	var (
		found    problem.List
		machines []machine
		count    = map[string]int{}
	)

	for _, r := range p.configurations() {
		m, isControlPlane := machine{resource: r}, false

		for _, document := range p.documents[r.URN] {
			var config struct {
				ClusterName string    `yaml:"clusterName"` // of KubeClusterConfig
				Endpoint    yaml.Node // of KubeClusterConfig; other documents have lists of that name
				Machine     struct {
					Type    string
					Network struct {
						Interfaces []struct{ Addresses []string }
					}
				}
				Cluster struct {
					ClusterName  string                    `yaml:"clusterName"`
					ControlPlane struct{ Endpoint string } `yaml:"controlPlane"`
				}
			}
			if document.Decode(&config) != nil {
				continue
			}

			isControlPlane = isControlPlane || config.Machine.Type == "controlplane"
			m.cluster = cmp.Or(m.cluster, config.Cluster.ClusterName, config.ClusterName)
			m.endpoint = cmp.Or(m.endpoint, config.Cluster.ControlPlane.Endpoint, config.Endpoint.Value)

			for _, card := range config.Machine.Network.Interfaces {
				m.addresses = append(m.addresses, card.Addresses...)
			}
		}

		if isControlPlane {
			machines = append(machines, m)
			count[m.cluster]++
		}
	}

	for _, m := range machines {
		for _, address := range m.addresses {
			host, _, _ := strings.Cut(address, "/")
			if endpoint, err := url.Parse(m.endpoint); err == nil && endpoint.Hostname() == host && count[m.cluster] > 1 {
				found = append(found, violation(m.URN, m.Name,
					"the endpoint of cluster %s, which has %d control planes, is this one (%s): set network.vip or endpoint of the cluster",
					m.cluster, count[m.cluster], m.endpoint))
			}
		}
	}

	return found
}

// requireDocument refuses nodes whose configuration is known and has no satisfying document.
func requireDocument(p plan, message string, satisfies func([]yaml.Node) bool) problem.List {
	var found problem.List

	for _, r := range p.configurations() {
		if r.at("stdin").text().Known && !satisfies(p.documents[r.URN]) {
			found = append(found, violation(r.URN, r.Name, "%s", message))
		}
	}

	return found
}

func diskEncryption(p plan) problem.List {
	return requireDocument(
		p, "STATE or EPHEMERAL is not encrypted: set encryption.state and encryption.ephemeral of its cluster before it is created",
		func(documents []yaml.Node) bool {
			encrypted := map[string]bool{}

			for _, document := range documents {
				var config struct {
					Kind, Name string
					Encryption *yaml.Node
					Machine    struct {
						SystemDiskEncryption struct{ State, Ephemeral *yaml.Node } `yaml:"systemDiskEncryption"`
					}
				}
				if document.Decode(&config) != nil {
					continue
				}

				encrypted[config.Name] = encrypted[config.Name] || config.Kind == "VolumeConfig" && config.Encryption != nil
				encrypted["STATE"] = encrypted["STATE"] || config.Machine.SystemDiskEncryption.State != nil
				encrypted["EPHEMERAL"] = encrypted["EPHEMERAL"] || config.Machine.SystemDiskEncryption.Ephemeral != nil
			}

			return encrypted["STATE"] && encrypted["EPHEMERAL"]
		},
	)
}

func talosFirewall(p plan) problem.List {
	return requireDocument(p, "Talos' firewall lets everything in: set firewall of its cluster, with the networks of administrators in firewall.admin", func(documents []yaml.Node) bool {
		for _, document := range documents {
			var config struct{ Kind, Ingress string }
			if document.Decode(&config) == nil && config.Kind == "NetworkDefaultActionConfig" && config.Ingress == "block" {
				return true
			}
		}

		return false
	})
}
