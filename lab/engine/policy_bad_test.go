package engine_test

import (
	"maps"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/download"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	shell "github.com/pulumi/pulumi-command/sdk/go/command/remote"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// badPlan is a plan that policies have to refuse.
type badPlan struct {
	production bool
	draft      func(*draft)
	config     string   // of the policies, JSON
	policies   []string // exactly these policies refuse it
	message    string   // part of a message
}

// badPlans are all bad plans: the real engine refuses each of them, by exactly the expected policies.
func badPlans() map[string]badPlan {
	all := map[string]badPlan{}
	for _, topic := range []map[string]badPlan{
		badClusters(), badDevices(), badImages(), badVersions(), badSecrets(), badPrivileges(),
		badProduction(),
	} {
		maps.Copy(all, topic)
	}

	return all
}

func badClusters() map[string]badPlan {
	count, spread := []string{"control-plane-count"}, []string{"control-plane-spread"}
	on := func(hosts ...string) func(*draft) {
		return func(d *draft) {
			for _, host := range hosts {
				d.cp(host)
			}
		}
	}

	return map[string]badPlan{
		"two control planes": {
			draft:    on("pve1", "pve2"),
			policies: count,
			message:  "2 control planes (m-1-vm, m-2-vm) tolerate no more failures than 1: plan 3",
		},
		"three control planes on one host": {
			draft: on("pve1", "pve1", "pve1"), policies: spread, message: "on host pve1, where 2 would do",
		},
	}
}

func badDevices() map[string]badPlan {
	root := []string{"no-root-only-fields"}
	one := func(changes ...change) func(*draft) { return func(d *draft) { d.other("pve1", changes...) } }

	return map[string]badPlan{
		"a raw PCI id with a token": {
			draft:    one(device(vm.VirtualMachineHostpciArgs{Id: pulumi.String("0000:01:00")})),
			policies: root,
			message:  "use a mapping",
		},
		"more memory than there is": {
			draft:    func(d *draft) { d.cp("pve1"); d.worker("pve1") },
			config:   `{"host-capacity": {"hosts": {"pve1": {"memoryMiB": 8000}}}}`,
			policies: []string{"host-capacity"},
			message:  "8192 MiB of memory planned, and 8000 MiB for guests",
		},
	}
}

func badImages() map[string]badPlan {
	return map[string]badPlan{
		"an image without a version": {
			draft:    func(d *draft) { d.download("debian.img", "https://example.org/debian.img", checksum) },
			policies: []string{"versioned-images"},
		},
		"an image without checksum": {
			draft:    func(d *draft) { d.download("debian-13.1.img", "https://example.org/debian.img", nil) },
			policies: []string{"image-checksum"},
			message:  "the download from https://example.org/debian.img has no checksum",
		},
	}
}

func badVersions() map[string]badPlan {
	return map[string]badPlan{
		"an installer of an old Talos": {
			draft: func(d *draft) {
				d.configuration("c", "10.0.0.1", installer("factory.talos.dev/nocloud-installer/ab:v1.2.0"))
			},
			policies: []string{"supported-versions"}, message: "c: the installer, which a patch sets, has no version, or no supported one",
		},
	}
}

func badSecrets() map[string]badPlan {
	plain := []string{"no-plaintext-secrets"}
	run := func(args *local.CommandArgs) func(*draft) { return func(d *draft) { d.command(args) } }

	return map[string]badPlan{
		"a password in an environment": {
			draft: run(
				&local.CommandArgs{
					Create: pulumi.String("true"), Environment: pulumi.StringMap{"DB_PASSWORD": pulumi.String("hunter2")},
				},
			),
			policies: plain,
			message:  "environment.DB_PASSWORD has the name of a secret",
		},
		"a private key in a script": {
			draft: run(
				&local.CommandArgs{
					Create: pulumi.String("cat"), Stdin: pulumi.String("-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----"),
				},
			),
			policies: plain,
			message:  "stdin holds a private key",
		},
		"a Proxmox token in a command": {
			draft: run(
				&local.CommandArgs{Create: pulumi.String("curl -H 'Authorization: PVEAPIToken=" + planToken + "' https://pve")},
			),
			policies: plain,
			message:  "create holds a Proxmox API token",
		},
	}
}

func badPrivileges() map[string]badPlan {
	least := []string{"least-privilege"}

	return map[string]badPlan{
		"a token of root": {
			draft: func(d *draft) {
				d.provider(
					&proxmoxve.ProviderArgs{
						Endpoint: pulumi.String("https://127.0.0.1:8006/"),
						ApiToken: pulumi.String("root@pam!all=947e717a-ab18-4ee2-8123-6adba4f62f9a"),
					},
					vmid(210),
				)
			},
			policies: least,
		},
		"a role that may do more": {
			draft:    func(d *draft) { d.role("VM.Audit", "Permissions.Modify", "Sys.PowerMgmt") },
			policies: least,
			message:  "privileges has Permissions.Modify, Sys.PowerMgmt, which nothing here needs",
		},
		"a user who administrates": {
			draft:    func(d *draft) { d.rule("Administrator", "/", &proxmoxve.AclArgs{UserId: pulumi.String("pulumi@pve")}) },
			policies: least,
			message:  `roleId is Administrator on "/"`,
		},
		"a token that is its user": {
			draft: func(d *draft) { d.token(pulumi.Bool(false)) }, policies: least, message: "privilegesSeparation is false",
		},
	}
}

const planToken = "pulumi@pve!talos=947e717a-ab18-4ee2-8123-6adba4f62f9a"

func badProduction() map[string]badPlan {
	protect := []string{"production-protection"}
	through := func(args *proxmoxve.ProviderArgs) func(*draft) {
		return func(d *draft) {
			args.ApiToken = pulumi.String(planToken)
			d.provider(args, vmid(210))
		}
	}

	return map[string]badPlan{
		"an unprotected control plane": {
			production: true,
			draft:      func(d *draft) { d.cp("pve1") },
			policies:   protect,
			message:    "control plane of stack prod, a production one, is not protected",
		},
		"unprotected Talos secrets": {production: true, draft: func(d *draft) { d.secrets("v1.12") }, policies: protect},
		"an unprotected bootstrap": {production: true, draft: func(d *draft) {
			d.command(&local.CommandArgs{Create: pulumi.String("${TALOSOPS:-go run ./cmd/talosops} bootstrap")})
		}, policies: protect},
		"a host's certificate unseen": {
			production: true,
			draft: through(
				&proxmoxve.ProviderArgs{Endpoint: pulumi.String("https://127.0.0.1:8006/"), Insecure: pulumi.Bool(true)},
			),
			policies: []string{"production-tls"},
		},
		"a download from anyone": {production: true, draft: func(d *draft) {
			d.download(
				"debian-13.1.img", "https://example.org/debian.img",
				func(a *download.FileArgs) { checksum(a); a.Verify = pulumi.Bool(false) },
			)
		}, policies: []string{"production-tls"}},
		"a host whose key no one knows": {production: true, draft: func(d *draft) {
			_, err := shell.NewCommand(d.ctx, "shell", &shell.CommandArgs{
				Connection: shell.ConnectionArgs{Host: pulumi.String("127.0.0.1")}, Create: pulumi.String("true"),
			})
			d.record(err)
		}, policies: []string{"production-host-keys"}, message: "any key of the host is accepted"},
		"disks that anyone can read": {
			production: true, config: `{"production-disk-encryption": "mandatory", "production-talos-firewall": "disabled"}`,
			draft: func(d *draft) { d.configuration("c", "10.0.0.1", "") }, policies: []string{"production-disk-encryption"},
		},
		"an operator with any digest": {
			production: true, config: `{"production-chart-digests": "mandatory"}`,
			draft: func(d *draft) {
				d.command(&local.CommandArgs{
					Create: pulumi.String("${TALOSOPS:-go run ./cmd/talosops} gitops"),
					Stdin:  pulumi.String(`{"chart": "oci://127.0.0.1/flux-operator", "chartVersion": "0.59.0"}`),
				})
			},
			policies: []string{"production-chart-digests"}, message: "is installed whatever its digest is",
		},
		"an endpoint that one control plane is": {
			production: true,
			config: `{"production-endpoint": "mandatory", "production-talos-firewall": "disabled", "production-disk-encryption": "disabled", ` +
				`"production-pod-security": "disabled", "production-audit-log": "disabled"}`,
			draft: func(d *draft) {
				for name, address := range map[string]string{"c": "10.0.0.1", "d": "10.0.0.2"} {
					d.configuration(name, address, "machine: {type: controlplane, network: {interfaces: [{addresses: ["+address+"/24]}]}}\n"+
						"cluster: {clusterName: one, controlPlane: {endpoint: 'https://10.0.0.1:6443'}}\n")
				}
			},
			policies: []string{"production-endpoint"}, message: "which has 2 control planes, is this one",
		},
		"pods that may do anything": {
			production: true,
			config: `{"production-pod-security": "mandatory", "production-talos-firewall": "disabled", ` +
				`"production-disk-encryption": "disabled"}`,
			draft: func(d *draft) {
				d.configuration("c", "10.0.0.1", "machine: {type: controlplane}\ncluster: {apiServer: {auditPolicy: {rules: [{level: Metadata}]}}}\n")
			},
			policies: []string{"production-pod-security"}, message: "pods may do anything",
		},
		"an API server that records nothing": {
			production: true,
			config: `{"production-audit-log": "mandatory", "production-talos-firewall": "disabled", ` +
				`"production-disk-encryption": "disabled", "production-pod-security": "disabled"}`,
			draft: func(d *draft) {
				d.configuration("c", "10.0.0.1", "machine: {type: controlplane}\ncluster: {apiServer: {auditPolicy: {rules: [{level: None}]}}}\n")
			},
			policies: []string{"production-audit-log"}, message: "records no requests",
		},
		"an API server that answers anybody": {
			production: true,
			config: `{"production-api-access": "mandatory", "production-talos-firewall": "disabled", ` +
				`"production-disk-encryption": "disabled", "production-pod-security": "disabled", "production-audit-log": "disabled"}`,
			draft: func(d *draft) {
				d.configuration("c", "10.0.0.1", "machine: {type: controlplane}\ncluster: {apiServer: {extraArgs: {anonymous-auth: 'true'}}}\n")
			},
			policies: []string{"production-api-access"}, message: "lets in what Talos keeps out",
		},
		"images from anyone": {
			production: true,
			config: `{"production-registries": "mandatory", "production-talos-firewall": "disabled", ` +
				`"production-disk-encryption": "disabled"}`,
			draft: func(d *draft) {
				d.configuration("c", "10.0.0.1", "machine: {registries: {config: {registry.example.org: {tls: {insecureSkipVerify: true}}}}}\n")
			},
			policies: []string{"production-registries"}, message: "images come from whoever answers",
		},
		"a Talos API open to all": {
			production: true, config: `{"production-talos-firewall": "mandatory", "production-disk-encryption": "disabled"}`,
			draft: func(d *draft) { d.configuration("c", "10.0.0.1", "") }, policies: []string{"production-talos-firewall"},
		},
	}
}
