// Package tokens defines type tokens and names of the resources that the program registers, for code that reads a plan
// or a state. Both must never change: they identify resources in states.
package tokens

// Stack is the type of the root resource of a stack.
const Stack = "pulumi:pulumi:Stack"

// Plugin is a published provider plugin, in the version of the program's SDK.
type Plugin struct {
	Name, Version string
	// Server is the download URL of a plugin that Pulumi does not publish.
	Server string
}

// The plugins that the program needs.
var (
	ProxmoxPlugin = Plugin{"proxmoxve", "6.18.1", "github://api.github.com/muhlba91/pulumi-proxmoxve"}
	TalosPlugin   = Plugin{"talos", "0.7.1", "github://api.github.com/pulumiverse"}
	CommandPlugin = Plugin{Name: "command", Version: "1.2.1"}
)

// Types of the providers' resources.
const (
	ProxmoxProvider = "pulumi:providers:proxmoxve"

	VirtualMachine = "proxmoxve:VM/virtualMachine:VirtualMachine"
	File           = "proxmoxve:Download/file:File"
	PCIMapping     = "proxmoxve:Hardware/mapping/pci:Pci"
	USBMapping     = "proxmoxve:Hardware/mapping/usb:Usb"
	Role           = "proxmoxve:Permission/role:Role"
	User           = "proxmoxve:Permission/user:User"
	Group          = "proxmoxve:Permission/group:Group"
	UserToken      = "proxmoxve:User/token:Token" //nolint:gosec // a type
	ACL            = "proxmoxve:index/acl:Acl"

	Secrets            = "talos:machine/secrets:Secrets" //nolint:gosec // a type
	ConfigurationApply = "talos:machine/configurationApply:ConfigurationApply"
	Bootstrap          = "talos:machine/bootstrap:Bootstrap"
	Kubeconfig         = "talos:cluster/kubeconfig:Kubeconfig"
	Schematic          = "talos:imageFactory/schematic:Schematic"

	LocalCommand  = "command:local:Command"
	RemoteCommand = "command:remote:Command"
)

// Types of the program's own components that other packages use. Nodes is the prefix of the types of nodes.
const (
	Nodes = "talos-proxmox:node:"

	Record         = "talos-proxmox:stack:Record"
	TalosCluster   = "talos-proxmox:cluster:TalosCluster"
	TalosNode      = Nodes + "TalosNode"
	CloudMachine   = "talos-proxmox:machine:CloudMachine"
	GoldenTemplate = "talos-proxmox:template:GoldenTemplate"
)

// MachineGuard is the name of the command that verifies the stack's machines before they are destroyed.
const MachineGuard = "verify-machines"

// VolumesVariable is the environment variable of the command that applies a configuration with the directory volumes on
// the machine's system disk, separated by blanks, for those who review its deletion; talosops does not read it.
const VolumesVariable = "VOLUMES"

// OfMapping is the suffix of the name of a PCI or USB mapping.
const OfMapping = "-mapping"

// OfVolume precedes the name of a volume in that of the command that makes it; the machine's name precedes both.
const OfVolume = "-volume-"

// Suffixes of resources of a machine or node: its VM, its configuration, Proxmox' firewall in front of it, the command
// with which it leaves its cluster, and its high availability.
const (
	OfVM            = "-vm"
	OfConfiguration = "-configuration"
	OfFirewall      = "-firewall"
	OfLeave         = "-leave"
	OfHA            = "-ha"
)

// Suffixes of resources of a cluster: its secrets and kubeconfig, the upgrade of Talos, the bootstrap, the health gate,
// and the commands that install its CNI and Flux.
const (
	OfSecrets    = "-secrets"
	OfKubeconfig = "-kubeconfig"
	OfUpgrade    = "-talos"
	OfBootstrap  = "-bootstrap"
	OfGate       = "-healthy"
	OfCNI        = "-cni"
	OfGitOps     = "-gitops"
	// OfAutoscaled follows the name of the cluster and of a pool.
	OfAutoscaled = "-autoscale"
)
