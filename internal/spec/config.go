package spec

// Config is the stack's configuration under the namespace talos-proxmox. The `jsonschema` tags contain the rules for
// single values (required, default, minimum, maximum, enum), which [Load], the JSON schema and the reference in
// docs/configuration.md use.
type Config struct {
	// The Proxmox VE hosts.
	Hosts []HostConfig `json:"hosts" jsonschema:"required,minItems=1"`
	// The classes of machine templates by name. A pool without `template` uses the class `talos`.
	Templates map[string]TemplateConfig `json:"templates" jsonschema:"required"`
	// The Talos Kubernetes clusters. A stack has clusters, `machines`, or both.
	Clusters []ClusterConfig `json:"clusters,omitempty" jsonschema:"minItems=1"`
	// Machines of systems other than Talos, which belong to no cluster.
	Machines []MachinesConfig `json:"machines,omitempty"`
	// Protect control-plane VMs (in Proxmox as well), Talos secrets and the bootstrap against deletion. To delete them,
	// first run `up` with `false`.
	Protect bool `json:"protect,omitempty" jsonschema:"default=false"`
	// The Proxmox cluster of the stack: the SHA-256 fingerprint of its certificate authority, as `openssl x509
	// -fingerprint -sha256 -noout -in /etc/pve/pve-root-ca.pem` prints it on a host. Previews and `up` refuse another
	// one. Default: the cluster of the stack's first `up`.
	ProxmoxCluster string `json:"proxmoxCluster,omitempty"`
	// The VMIDs each role may use.
	VMIDRanges VMIDRangesConfig `json:"vmidRanges,omitempty"`
	// The domains, with everything below them, and the networks beyond those of the stack that its hosts, its machines and
	// this program reach. Previews and `up` refuse whatever the stack file, or a default, would contact outside of them:
	// air-gapped.md. Default: all.
	Egress []string `json:"egress,omitempty" jsonschema:"minItems=1,example=example.internal"`
	// Where backups of the clusters are stored, and who can decrypt them: `talos-proxmox backup etcd` and `talos-proxmox
	// secrets export`.
	Backup Backup `json:"backup,omitempty"`
	// Who is told what commands did.
	Notifications Notifications `json:"notifications,omitempty"`
}

// Notifications say who is told what `talos-proxmox deploy`, `replace` and `repair` did, or failed at.
type Notifications struct {
	// The URL that gets a JSON document at the end of each such command (pipelines.md#notifications). `http://` is
	// accepted only on 127.0.0.0/8. It must be stored encrypted, because it has a token. Default: the environment variable
	// `TALOS_PROXMOX_WEBHOOK`, or else nobody is told.
	Webhook string `json:"webhook,omitempty"`
}

// Backup says where backups of the clusters are stored, and who can decrypt them. A backup is encrypted with
// age: whoever writes it cannot read it.
type Backup struct {
	// The public keys (`age1…`) that snapshots of etcd are encrypted to. Without one there are no snapshots.
	Recipients []string `json:"recipients,omitempty"`
	// The public keys that exported machine secrets are encrypted to; whoever can decrypt both these and a snapshot can
	// read every Secret of a cluster, so use keys of other people. Without one nothing is exported.
	SecretsRecipients []string `json:"secretsRecipients,omitempty"`
	// The directory of backups. `~/` is the home directory of the user who runs the command; other paths are relative to
	// the project.
	Directory string `json:"directory,omitempty" jsonschema:"default=~/.pulumi-backups"`
	// How many snapshots of each cluster are kept; 0 = all.
	Keep int `json:"keep,omitempty" jsonschema:"default=14,minimum=0,maximum=100000"`
	// A bucket for a second copy of each snapshot, which nobody can delete before its retention ends. Default: none.
	S3 *S3 `json:"s3,omitempty"`
}

// S3 is a bucket with object lock on a server with the S3 API.
type S3 struct {
	// The server's address. `http://` is accepted only on 127.0.0.0/8.
	Endpoint string `json:"endpoint" jsonschema:"required,example=https://s3.eu-central-1.amazonaws.com"`
	// The bucket, which must have been created with object lock.
	Bucket string `json:"bucket" jsonschema:"required,example=prod-backups"`
	// The region. Default: the one that the server reports, which needs `s3:GetBucketLocation`.
	Region string `json:"region,omitempty" jsonschema:"example=eu-central-1"`
	// The prefix of the objects' names. Default: none.
	Prefix string `json:"prefix,omitempty" jsonschema:"example=talos/prod"`
	// For how many days nobody can delete a copy. It stays until a lifecycle rule of the bucket expires it.
	RetentionDays int `json:"retentionDays,omitempty" jsonschema:"default=30,minimum=1,maximum=36500"`
	// Who can delete it earlier: `GOVERNANCE` = those with the right `s3:BypassGovernanceRetention`, `COMPLIANCE` =
	// nobody, not even the owner of the account.
	RetentionMode string `json:"retentionMode,omitempty" jsonschema:"default=GOVERNANCE,enum=GOVERNANCE,enum=COMPLIANCE"`
	// The access key of credentials that may add and read objects, but not delete them. Default: the environment variable
	// `AWS_ACCESS_KEY_ID`, with `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`.
	AccessKey string `json:"accessKey,omitempty"`
	// The secret key; must be stored encrypted.
	SecretKey string `json:"secretKey,omitempty"`
}

// VMIDRangesConfig holds the VMIDs that each role may use, first and last included. A VMID outside its range is
// refused.
type VMIDRangesConfig struct {
	// VMIDs of templates.
	Templates string `json:"templates,omitempty" jsonschema:"default=900-999"`
	// VMIDs of control planes.
	ControlPlanes string `json:"controlPlanes,omitempty" jsonschema:"default=2000-2999"`
	// VMIDs of workers.
	Workers string `json:"workers,omitempty" jsonschema:"default=3000-3999"`
	// VMIDs of GPU workers.
	GPUWorkers string `json:"gpuWorkers,omitempty" jsonschema:"default=4000-4999"`
	// VMIDs of plain machines.
	Machines string `json:"machines,omitempty" jsonschema:"default=5000-5999"`
	// VMIDs of the machines that autoscalers add, which the program uses for nothing else; only with `autoscale` of a
	// pool.
	Autoscaled string `json:"autoscaled,omitempty" jsonschema:"default=20000-29999"`
}

// HostConfig is a Proxmox VE host.
type HostConfig struct {
	// The node's name in Proxmox VE.
	Name string `json:"name" jsonschema:"required,example=pve1"`
	// The host's number in the stack, from which the VMIDs of its templates are calculated. Default: the number at the
	// end of its name.
	Number int `json:"number,omitempty" jsonschema:"minimum=0,maximum=9999"`
	// The host's IPv4 address.
	Address string `json:"address" jsonschema:"required,example=10.0.0.2"`
	// The SSH connection to the host; needed for templates with `source: image`, for `prep`, `gpus` and `devices`.
	SSH SSH `json:"ssh,omitempty"`
	// How the host is prepared, over SSH. Default: it is not prepared; `prep: {}` prepares it with the defaults.
	Prep *Prep `json:"prep,omitempty"`
	// The host's GPUs for machines. Without `prep` the host is checked, but never changed.
	GPUs []GPUConfig `json:"gpus,omitempty"`
	// Other devices of the host for machines, PCI and USB, as `gpus`.
	Devices []DeviceConfig `json:"devices,omitempty"`
	// How much of the host guests may use. Planning more memory is an error, more cores a warning. Default: not checked.
	Capacity CapacityConfig `json:"capacity,omitempty"`
}

// SSH is the SSH connection to a host. The private key is the secret `sshPrivateKey`, or comes from an SSH
// agent.
type SSH struct {
	// TCP port.
	Port int `json:"port,omitempty" jsonschema:"default=22,minimum=1,maximum=65535"`
	// The user to log in as; it must be allowed to run `qm`.
	User string `json:"user,omitempty" jsonschema:"default=root"`
	// The host's public key, as `ssh-keyscan` prints it without the host's name.
	HostKey string `json:"hostKey,omitempty" jsonschema:"example=ssh-ed25519 AAAAC3Nz…"`
	// Accept any host key, instead of `hostKey`.
	AcceptAnyHostKey bool `json:"acceptAnyHostKey,omitempty" jsonschema:"default=false"`
}

// CapacityConfig is how much of a host guests may use. Nothing more is reserved: subtract what the host itself, ZFS
// and other guests need.
type CapacityConfig struct {
	// Cores for guests; 0 = not checked.
	Cores int `json:"cores,omitempty" jsonschema:"minimum=0,maximum=8192"`
	// Memory for guests in MiB; 0 = not checked.
	MemoryMiB int `json:"memoryMiB,omitempty" jsonschema:"minimum=0,maximum=67108864"`
}

// TemplateConfig is a class of templates. Every host with a machine of the class gets a template of it, and so does
// every host in `hosts`.
type TemplateConfig struct {
	SystemConfig
	// The full Talos version; required for classes of Talos. New machines are created with it; running machines are
	// upgraded, never replaced.
	Version string `json:"version,omitempty" jsonschema:"example=v1.14.4,pattern=^v[0-9]+\\.[0-9]+\\.[0-9]+(-[0-9A-Za-z.]+)?$"`
	// The machines' processor architecture. Proxmox VE is released for amd64 only.
	Arch string `json:"arch,omitempty" jsonschema:"default=amd64,enum=amd64,because=Proxmox VE is released for amd64 and its machines are x86"`
	// How the template is made: `image` = a VM template from a disk image, built over SSH; `import` = the same template,
	// through the Proxmox API only (Proxmox VE 8.4 or newer); `iso` = no VM template, nodes boot the ISO and install
	// themselves, through the Proxmox API only.
	Source string `json:"source,omitempty" jsonschema:"default=image,enum=image,enum=iso,enum=import"`
	// The datastore of the template's disk.
	Datastore string `json:"datastore,omitempty" jsonschema:"default=local-lvm"`
	// The datastore of the downloaded file; it needs the content type `iso`, with `source: import` the content type
	// `import`.
	ImageDatastore string `json:"imageDatastore,omitempty" jsonschema:"default=local"`
	// Talos system extensions, by short name (`qemu-guest-agent`) or in full (`siderolabs/qemu-guest-agent`).
	Extensions []string `json:"extensions,omitempty"`
	// Accept extensions that are not official ones of the configured version, such as those of your own Image Factory
	// (`talos:imageFactoryUrl`).
	AcceptAnyExtension bool `json:"acceptAnyExtension,omitempty" jsonschema:"default=false"`
	// Additional kernel arguments, one per entry, in this order.
	KernelArgs []string `json:"kernelArgs,omitempty"`
	// The SHA-256 of the downloaded (still compressed) file in hexadecimal; empty = not checked. For systems other than
	// Talos, with the publisher's algorithm: sha256:…, sha384:… or sha512:….
	Checksum string `json:"checksum,omitempty"`
	// The base of the templates' VMIDs: the template on host number n has the VMID firstVmid + n. Default: the first of
	// `vmidRanges.templates`. Unused with `source: iso`.
	FirstVMID int `json:"firstVmid,omitempty" jsonschema:"minimum=0,maximum=999999999"`
	// Cores of the template's own VM; every machine sets its own.
	Cores int `json:"cores,omitempty" jsonschema:"default=4,minimum=1,maximum=512"`
	// Memory of the template's own VM in MiB; every machine sets its own.
	MemoryMiB int `json:"memoryMiB,omitempty" jsonschema:"default=4096,minimum=512,maximum=16777216"`
	// The template's disk in GiB; the minimum for machines of the class.
	DiskGiB int `json:"diskGiB,omitempty" jsonschema:"default=20,minimum=5,maximum=65536"`
	// The bridge of the template's network card.
	Bridge string `json:"bridge,omitempty" jsonschema:"default=vmbr0"`
	// Settings of the class's templates for machines with a GPU.
	GPU GPUTemplateConfig `json:"gpu,omitempty"`
}

// ClusterConfig is a Talos Kubernetes cluster.
type ClusterConfig struct {
	// The cluster's name; the names of its machines begin with it. It cannot change while they run.
	Name string `json:"name" jsonschema:"required,example=prod"`
	// The full Kubernetes version. Default: the default version of the control planes' Talos minor version.
	KubernetesVersion string `json:"kubernetesVersion,omitempty" jsonschema:"example=v1.37.2,pattern=^v[0-9]+\\.[0-9]+\\.[0-9]+(-[0-9A-Za-z.]+)?$"`
	// Let ordinary pods run on control planes. Default: true for clusters without workers (dedicated GPU workers do not
	// count), otherwise false.
	AllowSchedulingOnControlPlanes *bool `json:"allowSchedulingOnControlPlanes,omitempty"`
	// How machines are made from their template: `linked` clones share the template's disk and must stay on its
	// datastore.
	Clone string `json:"clone,omitempty" jsonschema:"default=full,enum=full,enum=linked"`
	// How running machines are upgraded to the version, extensions and kernel arguments of their template.
	Talos TalosUpgrades `json:"talos,omitempty"`
	// How many seconds a drain may take, before a node is restarted, upgraded or removed. After that the run fails, names
	// the pods that are left, and uncordons the node.
	DrainTimeoutSeconds int `json:"drainTimeoutSeconds,omitempty" jsonschema:"default=300,minimum=1,maximum=3600"`
	// A shell command that must succeed before a node is drained (for a restart, an upgrade or a removal) and before
	// Kubernetes is upgraded. It runs on the computer that runs `pulumi up`, with the administrator's kubeconfig in
	// KUBECONFIG, and is repeated for up to five minutes; then the run fails and shows its output.
	HealthCheck string `json:"healthCheck,omitempty" jsonschema:"example=kubectl wait --for=condition=Available --timeout=30s deployment/web"`
	// When running machines may be interrupted. Default: at any time.
	Maintenance *Maintenance `json:"maintenance,omitempty"`
	// Bootstrap an empty etcd if all control planes have lost their data, once for each text, such as the date. The
	// cluster's objects are lost, and its workers stop their pods. Default: such a cluster waits for `talos-proxmox
	// restore`.
	BootstrapEmpty string `json:"bootstrapEmpty,omitempty" jsonschema:"example=2026-11-24"`
	// The network of the cluster's machines.
	Network NetworkConfig `json:"network" jsonschema:"required"`
	// The Kubernetes API's endpoint in kubeconfigs and machine configurations: a DNS name, or a load balancer of your own.
	// Default: port 6443 of the VIP, otherwise of the first control plane.
	Endpoint *EndpointConfig `json:"endpoint,omitempty"`
	// Additional names and addresses in the certificates of the Kubernetes API and of each machine's Talos API. The
	// endpoint's host, the VIP and the machines' own names and addresses are in them anyway.
	CertSANs []string `json:"certSANs,omitempty" jsonschema:"example=k8s.example.org"`
	// The discovery service by which machines find each other: the address of one of your own, or `none`; then they find
	// the others by the Kubernetes API's endpoint. Default: Talos' own, https://discovery.talos.dev/.
	Discovery string `json:"discovery,omitempty" jsonschema:"example=https://discovery.example.org/"`
	// Where machines send the logs of Talos' services and of the kernel, as JSON lines: docs/status.md. Default: nowhere.
	LogDestinations []string `json:"logDestinations,omitempty" jsonschema:"example=tcp://10.0.0.7:6050"`
	// The tailnet that the machines join, of Tailscale or Headscale: networking.md. Default: none.
	Tailscale *Tailscale `json:"tailscale,omitempty"`
	// The IPv4 network of pods; every machine gets 256 addresses of it. It cannot change.
	PodCIDR string `json:"podCidr,omitempty" jsonschema:"default=10.244.0.0/16"`
	// The IPv4 network of services; the cluster's DNS has its tenth address. It cannot change.
	ServiceCIDR string `json:"serviceCidr,omitempty" jsonschema:"default=10.96.0.0/12"`
	// The IPv6 network of pods in a dual-stack cluster; every machine gets a /64 of it. It cannot change. Default:
	// fd00:10:244::/56 with `network.ipv6`, otherwise none.
	PodCIDRIPv6 string `json:"podCidrIPv6,omitempty" jsonschema:"example=fd00:10:244::/56"`
	// The IPv6 network of services in a dual-stack cluster; the cluster's DNS has its tenth address as well. It cannot
	// change. Default: fd00:10:96::/112 with `network.ipv6`, otherwise none.
	ServiceCIDRIPv6 string `json:"serviceCidrIPv6,omitempty" jsonschema:"example=fd00:10:96::/112"`
	// The CNI.
	CNI CNIConfig `json:"cni,omitempty"`
	// `hardened` switches on what production should have, in keys that are not set themselves: `encryption` with
	// `nodeID`, `apiServer.auditPolicy` and `apiServer.podSecurity`; it needs `firewall`, and refuses patches that open the
	// API server: security.md. Default: none of it.
	Security string `json:"security,omitempty" jsonschema:"enum=hardened"`
	// The encryption of the machines' disks. Default: none.
	Encryption *Encryption `json:"encryption,omitempty"`
	// The API servers: who logs in, what is recorded, and what pods may do. Default: as Talos sets them.
	APIServer *APIServer `json:"apiServer,omitempty"`
	// Mirrors, users and certificate authorities of image registries. Default: none.
	Registries *Registries `json:"registries,omitempty"`
	// Talos' firewall on the machines, which blocks everything but what the cluster needs. Default: none, everything is
	// open; `firewall: {}` opens nothing beyond the machines' own networks.
	Firewall *FirewallConfig `json:"firewall,omitempty"`
	// The control planes.
	ControlPlane ControlPlaneConfig `json:"controlPlane" jsonschema:"required"`
	// Pools of workers.
	Workers []WorkersConfig `json:"workers,omitempty"`
	// Pools of workers with GPUs.
	GPUWorkers []GPUWorkersConfig `json:"gpuWorkers,omitempty"`
	// Do not install NVIDIA's device plugin, because you install NVIDIA's GPU Operator, which includes it. The output
	// `gpuOperatorValues` has the values for its chart.
	GPUOperator bool `json:"gpuOperator,omitempty" jsonschema:"default=false"`
	// The source that Flux reconciles. Default: none, and Flux is not installed.
	GitOps *GitOpsConfig `json:"gitops,omitempty"`
	// Talos strategic-merge patches for all machines of the cluster, as YAML text.
	Patches []string `json:"patches,omitempty"`
	// Topology labels and provider ids of the nodes, and Proxmox accounts for the CSI plugin and the cloud controller
	// manager. Default: none.
	Proxmox *ProxmoxConfig `json:"proxmox,omitempty"`
}

// TalosUpgrades say how Talos is upgraded on running machines: control planes one after the other, then workers.
type TalosUpgrades struct {
	// How many workers are upgraded at a time. Each is drained first, so the others need room for its pods.
	ParallelWorkers int `json:"parallelWorkers,omitempty" jsonschema:"default=1,minimum=1,maximum=1000" pulumi:"parallelWorkers,optional"`
	// Allow a downgrade, by one minor version at most.
	AllowDowngrade bool `json:"allowDowngrade,omitempty" jsonschema:"default=false" pulumi:"allowDowngrade,optional"`
}

// NetworkConfig is the network of a cluster's machines.
type NetworkConfig struct {
	// The IPv4 network.
	CIDR string `json:"cidr" jsonschema:"required,example=10.0.0.0/24"`
	// The router's address. Default: none; machines can reach their own network only.
	Gateway string `json:"gateway,omitempty" jsonschema:"example=10.0.0.1"`
	// The Proxmox bridge, or the name of a VNet of Proxmox' SDN.
	Bridge string `json:"bridge,omitempty" jsonschema:"default=vmbr0"`
	// The VLAN tag that Proxmox sets; 0 = untagged.
	VLAN int `json:"vlan,omitempty" jsonschema:"default=0,minimum=0,maximum=4094"`
	// The MTU in bytes; 0 = the bridge's.
	MTU int `json:"mtu,omitempty" jsonschema:"default=0,minimum=0,maximum=65520"`
	// The IPv6 network beside it, which makes the cluster dual-stack: machines, pods and services have addresses of both
	// families. Whether a cluster is dual-stack cannot change. Default: none, IPv4 only.
	IPv6 *IPv6NetworkConfig `json:"ipv6,omitempty"`
	// Name servers; with `ipv6`, by addresses of either family. Default: Talos' own.
	DNS []string `json:"dns,omitempty" jsonschema:"example=1.1.1.1"`
	// Time servers, by name or address. Default: Talos' own.
	NTP []string `json:"ntp,omitempty" jsonschema:"example=time.cloudflare.com"`
	// Authenticate the time servers by NTS, with Talos 1.14 or newer; they are then names, and offer it.
	NTS bool `json:"nts,omitempty" jsonschema:"default=false"`
	// The virtual IP of the Kubernetes API, an address in the control planes' network that they share. Without it and
	// without `endpoint`, the API has no common address for several control planes.
	VIP string `json:"vip,omitempty" jsonschema:"example=10.0.0.5"`
	// How machines get their address: `static`, or `dhcp`, with reservations of the planned addresses for the planned
	// MACs on the router.
	Addressing string `json:"addressing,omitempty" jsonschema:"default=static,enum=static,enum=dhcp"`
	// Routes over the first network device, beside that to `gateway`.
	Routes []RouteConfig `json:"routes,omitempty"`
	// DNS search domains. Default: those of DHCP.
	SearchDomains []string `json:"searchDomains,omitempty" jsonschema:"example=example.org"`
	// Names that machines resolve without DNS.
	StaticHosts []StaticHostConfig `json:"staticHosts,omitempty"`
}

// IPv6NetworkConfig is the IPv6 network of machines that have IPv4 as well.
type IPv6NetworkConfig struct {
	// The network. Each machine has the same place in it as in the IPv4 network: with 10.0.0.0/24 and fd00:1::/64, the
	// machine with 10.0.0.20 has fd00:1::14.
	CIDR string `json:"cidr" jsonschema:"required,example=fd00:1::/64"`
	// The router's address, in the network or link-local (fe80::…). Default: none; machines use the routers that announce
	// themselves.
	Gateway string `json:"gateway,omitempty" jsonschema:"example=fd00:1::1"`
}

// EndpointConfig is the endpoint of a cluster's Kubernetes API.
type EndpointConfig struct {
	// The DNS name or the address of the VIP, of the control planes (a name with an address of each) or of a load
	// balancer that forwards TCP connections to port 6443 of the control planes.
	Host string `json:"host" jsonschema:"required,example=k8s.example.org"`
	// The TCP port, which only a load balancer can have other than 6443.
	Port int `json:"port,omitempty" jsonschema:"default=6443,minimum=1,maximum=65535"`
}

// ControlPlaneConfig is the pool of a cluster's control planes, named `<cluster>-cp-<n>`.
type ControlPlaneConfig struct {
	// How many; must be odd, because one more would tolerate no further failure.
	Count int `json:"count,omitempty" jsonschema:"default=1,minimum=1,maximum=7"`
	// How machines without a pinned host are placed: `spread` = onto the listed host with the fewest machines of the
	// pool; `roundRobin` = by number along the list of hosts; `explicit` = every machine needs its host under `nodes`.
	Placement string `json:"placement,omitempty" jsonschema:"default=spread,enum=spread,enum=roundRobin,enum=explicit"`
	// Give each control plane a GPU of this name; for clusters that run GPU pods on their control planes, such as a
	// single node.
	GPU string `json:"gpu,omitempty" jsonschema:"example=rtx4000"`
	GPUUseConfig
	PoolConfig
}

// WorkersConfig is a pool of workers, named `<cluster>-<pool>-<n>`.
type WorkersConfig struct {
	// The pool's name. It cannot change while its machines run.
	Name string `json:"name" jsonschema:"required,example=general"`
	// How many; 0 keeps the pool without machines.
	Count int `json:"count,omitempty" jsonschema:"default=1,minimum=0,maximum=1000"`
	// How machines without a pinned host are placed: `spread` = onto the listed host with the fewest machines of the
	// pool; `roundRobin` = by number along the list of hosts; `explicit` = every machine needs its host under `nodes`.
	Placement string `json:"placement,omitempty" jsonschema:"default=roundRobin,enum=spread,enum=roundRobin,enum=explicit"`
	// Let an autoscaler add machines like those of the pool: [autoscaling.md](autoscaling.md). Default: none.
	Autoscale *AutoscaleConfig `json:"autoscale,omitempty"`
	// Let `talos-proxmox repair` replace dead machines of the pool without asking: `{}` for its defaults. Default: it does
	// not.
	Repair *RepairConfig `json:"repair,omitempty"`
	PoolConfig
}

// RepairConfig says which dead workers of a pool a scheduled `talos-proxmox repair` replaces.
type RepairConfig struct {
	// How long a node must not have been Ready, 1m or more; a reboot of its machine takes less.
	After string `json:"after,omitempty" jsonschema:"default=10m"`
	// How many machines of the pool one run replaces, one after the other. The next run goes on.
	Max int `json:"max,omitempty" jsonschema:"default=1,minimum=1,maximum=1000"`
	// Replace machines with volumes of their own, which are deleted with them: data disks, directory volumes, local
	// PersistentVolumes with a claim.
	LoseVolumes bool `json:"loseVolumes,omitempty" jsonschema:"default=false"`
}

// AutoscaleConfig lets a cluster autoscaler add machines to a pool, beside those of its `count`.
type AutoscaleConfig struct {
	// How many machines of the pool's size the autoscaler may add.
	Max int `json:"max" jsonschema:"required,minimum=1,maximum=1000,example=5"`
	// The autoscaler's user on Proxmox, which may clone the pool's templates; an administrator creates it.
	User string `json:"user" jsonschema:"required,example=karpenter@pve"`
	// The Proxmox resource pool of the autoscaler's machines, which must exist; the autoscaler's privileges are limited to
	// it, so it is not that of other machines.
	ResourcePool string `json:"resourcePool" jsonschema:"required,example=autoscaled"`
}
