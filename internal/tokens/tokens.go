// Package tokens holds the type tokens and the names of the resources that the program registers, for those who read a
// plan or a state. Both are stable for ever: a state finds its resources by them.
package tokens

// Stack is the type of the resource that a stack is in its own state.
const Stack = "pulumi:pulumi:Stack"

// Plugin is a published provider plugin, in the version of the SDK that the program uses.
type Plugin struct {
	Name, Version string
	// Server is where the plugin is downloaded from when it is not Pulumi's own.
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

// Types of the program's own components that others than the components read. Nodes is how those of nodes begin.
const (
	Nodes = "talos-proxmox:node:"

	Record         = "talos-proxmox:stack:Record"
	TalosCluster   = "talos-proxmox:cluster:TalosCluster"
	TalosNode      = Nodes + "TalosNode"
	CloudMachine   = "talos-proxmox:machine:CloudMachine"
	GoldenTemplate = "talos-proxmox:template:GoldenTemplate"
)

// OfMapping ends the name of the mapping of a component's name.
const OfMapping = "-mapping"

// Endings of the names of what a machine or node has: its VM, its configuration, and the command by which it leaves its
// cluster.
const (
	OfVM            = "-vm"
	OfConfiguration = "-configuration"
	OfLeave         = "-leave"
)

// Endings of the names of what a cluster has: its secrets and kubeconfig, and the commands that begin it, look at it
// last, install its CNI and bring Flux to it.
const (
	OfSecrets    = "-secrets"
	OfKubeconfig = "-kubeconfig"
	OfBootstrap  = "-bootstrap"
	OfGate       = "-healthy"
	OfCNI        = "-cni"
	OfGitOps     = "-gitops"
)
