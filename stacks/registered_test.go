package stacks

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
)

// longTextLength is the length from which golden files contain only a text's digest.
const longTextLength = 200

// goldenRegistration is a registration in golden files: everything that decides what the engine does with a resource.
type goldenRegistration struct {
	Parent              string         `json:"parent,omitempty"`
	Inputs              any            `json:"inputs,omitempty"`
	Waits               []string       `json:"waits,omitempty"`
	Protect             bool           `json:"protect,omitempty"`
	DeleteBeforeReplace bool           `json:"deleteBeforeReplace,omitempty"`
	IgnoreChanges       []string       `json:"ignoreChanges,omitempty"`
	ReplaceWith         []string       `json:"replaceWith,omitempty"`
	Trigger             string         `json:"replacementTrigger,omitempty"`
	Aliases             []string       `json:"aliases,omitempty"`
	Hooks               map[string]int `json:"hooks,omitempty"`
	Outputs             any            `json:"outputs,omitempty"`
}

// TestWhatStacksRegister compares everything that stacks register with golden files. A difference may update or replace
// running machines.
func TestWhatStacksRegister(t *testing.T) {
	t.Parallel()

	iso := strings.Replace(gpuStack, "{version: v1.13.0}", "{version: v1.13.0, source: iso}", 1)
	imported := strings.Replace(gpuStack, "{version: v1.13.0}", "{version: v1.13.0, source: import}", 1)

	for name, options := range map[string]enginetest.Options{
		"dev":      stackOptions(t, "dev", nil),
		"prod":     stackOptions(t, "prod", nil),
		"lab":      stackOptions(t, "lab", labHostKeys(t)),
		"gpus":     stackOptionsOf(t, "test", gpuStack),
		"iso":      stackOptionsOf(t, "test", iso),
		"import":   stackOptionsOf(t, "test", imported),
		"wide":     stackOptionsOf(t, "test", wideStack),
		"proxmox":  stackOptionsOf(t, "test", proxmoxStack),
		"machines": stackOptionsOf(t, "test", machinesStack),

		"dual-stack": stackOptionsOf(t, "test", dualStack),
		"autoscale":  stackOptionsOf(t, "test", autoscaleStack),
	} {
		for _, run := range []string{"up", "preview"} {
			t.Run(name+" "+run, func(t *testing.T) {
				t.Parallel()

				o := options
				o.Preview = run == "preview"
				api := &fakeProxmox{config: map[string]string{"wide": wideCards, "machines": machineCards}[name]}

				r, err := enginetest.Run(o, Program{
					Transport: api, NewID: func() string { return "0123456789abcdef" },
				}.Deploy)
				require.NoError(t, err)

				got := map[string]goldenRegistration{"stack": {Outputs: goldenValue(resource.NewProperty(r.Exports()))}}
				for _, g := range r.All() {
					got[g.Type+" "+g.Name] = newGoldenRegistration(g)
				}

				text, err := json.MarshalIndent(got, "", " ")
				require.NoError(t, err)

				goldentest.Equal(t, "testdata/registered/"+name+"-"+run+".json", string(text)+"\n")
			})
		}
	}
}

// machinesStack has plain machines of systems with different hardware and addressing.
const machinesStack = `config:
  talos-proxmox:hosts:
    - {name: pve1, address: 127.1.0.11, ssh: {acceptAnyHostKey: true}}
  talos-proxmox:templates:
    debian: {os: debian, release: "13", build: 20260712-2537, firstVmid: 940, checksum: "sha512:00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000", user: ops}
    nixos: {os: nixos, release: "25.11", build: "1", firstVmid: 960, url: https://example.org/x.vma.zst, checksum: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
  talos-proxmox:machines:
    - name: web
      template: debian
      count: 1
      protect: true
      firstAddress: 127.1.1.60
      network: {cidr: 127.1.1.0/24, gateway: 127.1.1.1, dns: [127.1.1.1], searchDomain: example.org}
      extraNICs: [{bridge: vmbr1, cidr: 127.1.2.0/24}, {bridge: vmbr2}]
      extraDisks: [{sizeGiB: 20}]
      sshKeys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ops]
    - {name: nix, template: nixos, count: 1, firstVmid: 5100, network: {addressing: dhcp}}
`

// machineCards are the network cards of its machines in Proxmox.
const machineCards = `, "net1": "virtio=02:00:00:00:00:02,bridge=vmbr1", "net2": "virtio=02:00:00:00:00:03,bridge=vmbr2"`

// autoscaleStack has a pool that an autoscaler adds machines to.
const autoscaleStack = `config:
  talos-proxmox:hosts:
    - {name: pve1, address: 127.1.0.11, ssh: {acceptAnyHostKey: true}}
  talos-proxmox:templates:
    talos: {version: v1.12.6}
  talos-proxmox:clusters:
    - name: one
      kubernetesVersion: v1.35.0
      network: {cidr: 127.1.1.0/24, gateway: 127.1.1.1}
      proxmox: {region: homelab}
      controlPlane: {}
      workers:
        - name: burst
          count: 0
          labels: {example.org/kind: burst}
          autoscale: {max: 5, user: karpenter@pve, resourcePool: talos}
`

// proxmoxStack has accounts on Proxmox.
const proxmoxStack = `config:
  talos-proxmox:hosts:
    - {name: pve1, address: 127.1.0.11, ssh: {acceptAnyHostKey: true}}
    - {name: pve2, address: 127.1.0.12, ssh: {acceptAnyHostKey: true}}
  talos-proxmox:templates:
    talos: {version: v1.12.6}
  talos-proxmox:clusters:
    - name: one
      kubernetesVersion: v1.35.0
      network: {cidr: 127.1.1.0/24, gateway: 127.1.1.1}
      controlPlane: {count: 1}
      workers: [{name: db, count: 1, hosts: [pve2], labels: {tier: db}, taints: ["dedicated=db:NoSchedule"]}]
      proxmox:
        region: homelab
        csi: {tokens: [1, 2], storageClasses: [{name: fast, datastore: local-zfs, ssd: true, default: true}]}
        cloudController: {}
`

// wideStack uses settings that the others do not use.
const wideStack = `config:
  talos-proxmox:protect: true
  talos-proxmox:hosts:
    - {name: pve1, address: 127.1.0.11, ssh: {acceptAnyHostKey: true}, prep: {reboot: whenIdle, zfsArcMaxGiB: 2.5, repositories: no-subscription}}
    - {name: pve2, address: 127.1.0.12, ssh: {hostKey: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC7k, user: admin, port: 2022}, prep: {reboot: whenIdle, iommu: false}}
  talos-proxmox:templates:
    talos: {version: v1.12.6, datastore: local-lvm, extensions: [qemu-guest-agent], kernelArgs: [a=b], checksum: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08}
  talos-proxmox:clusters:
    - name: one
      kubernetesVersion: v1.35.0
      clone: linked
      network: {cidr: 127.1.1.0/24, gateway: 127.1.1.1, dns: [127.1.1.1, 127.1.1.2], ntp: [time.example.org], vip: 127.1.1.5, vlan: 7, mtu: 1400}
      podCidr: 10.42.0.0/16
      serviceCidr: 10.43.0.0/16
      controlPlane: {count: 3, cpuType: x86-64-v2-AES, cpuUnits: 500, numa: true, onBoot: false, startupOrder: 3, tags: [mine], resourcePool: prod}
      workers:
        - name: db
          count: 6
          cores: 4
          hosts: [pve1]
          extraDisks: [{sizeGiB: 100}, {sizeGiB: 50, interface: scsi5}]
          extraNICs: [{bridge: vmbr1, vlan: 9, cidr: 127.1.9.0/24}, {bridge: vmbr2, mtu: 9000}]
          labels: {example.org/a: b}
          taints: ["dedicated=db:NoSchedule"]
          patches: ["machine: {sysctls: {vm.max_map_count: '262144'}}"]
          nodes: {"2": {host: pve2}}
      patches: ["machine: {time: {disabled: false}}"]
    - name: two
      network: {cidr: 127.1.2.0/24, addressing: dhcp, vlan: 7}
      controlPlane: {firstVmid: 2100}
`

// dualStack has IPv4 and IPv6: static, and with DHCP.
const dualStack = `config:
  talos-proxmox:hosts:
    - {name: pve1, address: 127.1.0.11, ssh: {acceptAnyHostKey: true}}
  talos-proxmox:templates:
    talos: {version: v1.12.6}
    debian: {os: debian, release: "13", build: "20260712-2537", firstVmid: 940}
  talos-proxmox:clusters:
    - name: one
      kubernetesVersion: v1.35.0
      network: {cidr: 127.1.1.0/24, gateway: 127.1.1.1, dns: ["fd00:1::1"], ipv6: {cidr: "fd00:1::/64", gateway: "fd00:1::1"}}
      cni: {kind: cilium, loadBalancer: {addresses: [127.1.1.200-127.1.1.210, "fd00:1::c8-fd00:1::d2"]}}
      controlPlane: {count: 1}
      workers: [{name: db, count: 1}]
    - name: two
      kubernetesVersion: v1.35.0
      network: {cidr: 127.1.2.0/24, addressing: dhcp, ipv6: {cidr: "fd00:2::/64"}}
      podCidrIPv6: fd00:10:42::/56
      controlPlane: {firstVmid: 2100}
  talos-proxmox:machines:
    - name: web
      template: debian
      sshKeys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f]
      network: {cidr: 127.1.1.0/24, gateway: 127.1.1.1, dns: [127.1.1.1], ipv6: {cidr: "fd00:1::/64", gateway: "fe80::1"}}
`

// wideCards are the network cards of its machines in Proxmox.
const wideCards = `, "net0": "virtio=02:00:00:00:00:01,bridge=vmbr0,tag=7", "net1": "virtio=02:00:00:00:00:02,bridge=vmbr1,tag=9",
	"net2": "virtio=02:00:00:00:00:03,bridge=vmbr2"`

func newGoldenRegistration(g enginetest.Registration) goldenRegistration {
	request := g.Request

	r := goldenRegistration{
		Parent:              g.Parent,
		Inputs:              goldenValue(resource.NewProperty(g.Inputs)),
		Waits:               g.DependsOn(),
		Protect:             request.GetProtect(),
		DeleteBeforeReplace: request.GetDeleteBeforeReplace(),
		IgnoreChanges:       request.GetIgnoreChanges(),
		ReplaceWith:         g.ReplaceWith(),
		Trigger:             request.GetReplacementTrigger().GetStringValue(), Hooks: map[string]int{},
	}
	if g.Outputs != nil {
		r.Outputs = goldenValue(resource.NewProperty(g.Outputs))
	}

	for _, alias := range request.GetAliases() {
		r.Aliases = append(r.Aliases, alias.GetUrn()+alias.GetSpec().GetName()+" of "+alias.GetSpec().GetParentUrn())
	}

	for when, names := range map[string][]string{
		"beforeCreate": request.GetHooks().GetBeforeCreate(), "afterCreate": request.GetHooks().GetAfterCreate(),
		"beforeUpdate": request.GetHooks().GetBeforeUpdate(),
		"afterUpdate":  request.GetHooks().GetAfterUpdate(), "onError": request.GetHooks().GetOnError(),
	} {
		if len(names) > 0 {
			r.Hooks[when] = len(names)
		}
	}

	return r
}

// goldenValue returns a value for golden files: secrets and long texts as digests.
func goldenValue(value resource.PropertyValue) any {
	switch {
	case value.IsSecret():
		return map[string]any{"secret": digest(goldenValue(value.SecretValue().Element))}
	case value.IsOutput() && !value.OutputValue().Known, value.IsComputed():
		return "(unknown)"
	case value.IsOutput() && value.OutputValue().Secret:
		return map[string]any{"secret": digest(goldenValue(value.OutputValue().Element))}
	case value.IsOutput():
		return goldenValue(value.OutputValue().Element)
	case value.IsObject():
		fields := map[string]any{}
		for key, field := range value.ObjectValue() {
			fields[string(key)] = goldenValue(field)
		}

		return fields
	case value.IsArray():
		elements := make([]any, 0, len(value.ArrayValue()))
		for _, element := range value.ArrayValue() {
			elements = append(elements, goldenValue(element))
		}

		return elements
	case value.IsString() && len(value.StringValue()) > longTextLength:
		return digest(openedRequest(value.StringValue()))
	}

	return value.V
}

// openedRequest returns the request in a text as the state keeps it, without its digests of mocked secrets; a text that
// is none as it is.
func openedRequest(text string) string {
	opened, elsewhere, err := request.Open(text)
	if err != nil || !elsewhere {
		return opened
	}

	kept := request.AppliedConfiguration(text)
	kept.ConfigurationDigest, kept.TalosconfigDigest = "", ""

	rest, err := json.Marshal(kept)
	if err != nil {
		panic(err)
	}

	return string(rest)
}

func digest(value any) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(nameSecrets().Replace(fmt.Sprint(value)))))[:16]
}

// nameSecrets replaces the mocked machine secrets, which each process generates, by their names.
var nameSecrets = sync.OnceValue(func() *strings.Replacer {
	secrets, err := talos.PlaceholderSecrets()
	if err != nil {
		panic(err)
	}

	var names []string

	var add func(path string, value any)

	add = func(path string, value any) {
		switch value := value.(type) {
		case string:
			names = append(names, value, "("+path+")")
		case map[string]any:
			for key, field := range value {
				add(path+"."+key, field)
			}
		}
	}
	add("machineSecrets", secrets)

	return strings.NewReplacer(names...)
})
