package components

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/pulumi/pulumi-command/sdk/go/command/remote"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/systems"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// GoldenTemplateType is the type token of [GoldenTemplate].
const GoldenTemplateType = tokens.GoldenTemplate

// Actions of the build script.
const (
	actionBuild  = "build"
	actionRemove = "remove"
)

// GoldenTemplateArgs describe the template of one class on one host.
type GoldenTemplateArgs struct {
	// The name of the Proxmox host: pve1.
	Host string `pulumi:"host"`
	// The template's VMID, from 100 on; none with the source iso, which has no VM.
	VMID int `pulumi:"vmid,optional"`
	// The VM's name. Default: the resource's name.
	Name string `pulumi:"name,optional"`
	// How machines get their system: image = from a VM template that is built on the host over SSH, import = from the same
	// template, built through the API with the settings of the provider in the stack's configuration, iso = from the ISO.
	// Default: image.
	Source string `pulumi:"source,optional"`
	// The template's Talos. Default: none, system is set.
	Talos *Talos `pulumi:"talos,optional"`
	// The template's operating system, if it is not Talos. Default: Talos.
	System *System `pulumi:"system,optional"`
	// The volume of the image on the host: an output volumeIds of a TalosImage or of a SystemImage, or the installation
	// ISO of Windows. NixOS needs none: the host downloads it.
	Image pulumi.StringInput `pulumi:"image,optional"`
	// The datastore of the image. Default: local.
	ImageDatastore string `pulumi:"imageDatastore,optional"`
	// The datastore of the template's disk. Default: local-lvm.
	Datastore string `pulumi:"datastore,optional"`
	// The bridge of the template's network device. Default: vmbr0.
	Bridge string `pulumi:"bridge,optional"`
	// Cores of the template's own VM; every machine sets its own. Default: 4.
	Cores int `pulumi:"cores,optional"`
	// Memory of the template's own VM in MiB. Default: 4096.
	Memory int `pulumi:"memory,optional"`
	// The template's disk in GiB, which is the minimum for machines. Default: 20.
	DiskSize int `pulumi:"diskSize,optional"`
	// The Proxmox users of cluster autoscalers that may clone it, by the role TalosAutoscalerTemplates, which exists.
	// Default: none.
	ClonedBy []string `pulumi:"clonedBy,optional"`
	// The SSH connection to the host on which the template is built; unused with the sources import and iso. Default:
	// none.
	Shell *HostShell `pulumi:"shell,optional"`
}

// GoldenTemplate is the template of a class on one host: a VM template built from a disk image, or the ISO that nodes
// boot (source iso, without a VM). It contains only the operating system, no configuration or identity.
type GoldenTemplate struct {
	pulumi.ResourceState

	// The VMID of the template, for machines, which wait for the template when they use it. 0 with the source iso.
	VMID pulumi.IntOutput `pulumi:"vmid"`
	// The template's name.
	Name pulumi.StringOutput `pulumi:"name"`
	// The Proxmox host.
	Host pulumi.StringOutput `pulumi:"host"`
	// The volume of the downloaded file, which machines boot with the source iso: local:iso/talos-….
	VolumeID pulumi.StringOutput `pulumi:"volumeId"`
	// The id of the schematic at the Image Factory; empty for other systems than Talos.
	SchematicID pulumi.StringOutput `pulumi:"schematicId"`
	// Talos' version, with its v, or release and build of another system: 13-20260712-2537.
	Version pulumi.StringOutput `pulumi:"version"`
}

// NewGoldenTemplate builds the template; with the source iso, it only names the ISO.
func NewGoldenTemplate(
	ctx *pulumi.Context, name string, args GoldenTemplateArgs, opts ...pulumi.ResourceOption,
) (*GoldenTemplate, error) {
	args = args.withDefaults(name)
	if err := args.validate(name); err != nil {
		return nil, err
	}

	c := &GoldenTemplate{}

	return register(ctx, GoldenTemplateType, "template", name, c, opts, step{"the build of ", func() error {
		return c.registerTemplate(ctx, name, args)
	}})
}

func (c *GoldenTemplate) registerTemplate(ctx *pulumi.Context, name string, args GoldenTemplateArgs) error {
	c.VolumeID = pulumi.String("").ToStringOutput()
	if args.Image != nil {
		c.VolumeID = args.Image.ToStringOutput()
	}

	c.VMID = pulumi.Int(args.VMID).ToIntOutput()

	if args.hasVM() {
		build, err := c.registerBuild(ctx, name, args)
		if err != nil {
			return err
		}

		c.VMID = pulumi.OutputWithDependencies(ctx.Context(), c.VMID, build).(pulumi.IntOutput)

		if err := c.registerCloners(ctx, name, args, build); err != nil {
			return err
		}
	}

	c.Name = pulumi.String(args.Name).ToStringOutput()
	c.Host = pulumi.String(args.Host).ToStringOutput()
	c.SchematicID, c.Version = args.contents()

	return nil
}

// registerCloners lets the autoscalers clone the template. Proxmox deletes the permissions with the VM, which its build
// replaces.
func (c *GoldenTemplate) registerCloners(
	ctx *pulumi.Context, name string, args GoldenTemplateArgs, build pulumi.Resource,
) error {
	for _, user := range args.ClonedBy {
		if _, err := proxmoxve.NewAcl(ctx, name+"-"+user, &proxmoxve.AclArgs{
			Path: pulumi.String(fmt.Sprintf("/vms/%d", args.VMID)), UserId: pulumi.String(user),
			RoleId: pulumi.String(permissions.AutoscalerTemplates().ID), Propagate: pulumi.Bool(false),
		},
			pulumi.Parent(c), pulumi.DeleteBeforeReplace(true), pulumi.DependsOn([]pulumi.Resource{build}),
			pulumi.ReplaceWith([]pulumi.Resource{build}),
		); err != nil {
			return err
		}
	}

	return nil
}

// contents returns the schematic, empty for other systems than Talos, and the version.
func (a GoldenTemplateArgs) contents() (schematic, version pulumi.StringOutput) {
	if a.System != nil {
		return pulumi.String("").ToStringOutput(), pulumi.String(a.System.Version()).ToStringOutput()
	}

	return pulumi.String(a.Talos.SchematicID()).ToStringOutput(), pulumi.String(a.Talos.Version).ToStringOutput()
}

// hasVM reports whether the template is a VM.
func (a GoldenTemplateArgs) hasVM() bool { return spec.Source(a.Source).HasVM() }

func (c *GoldenTemplate) registerBuild(
	ctx *pulumi.Context, name string, args GoldenTemplateArgs,
) (pulumi.Resource, error) {
	r := newRecipe(args, stackPath(ctx))
	if args.Source == SourceImport {
		return c.registerImport(ctx, name, args, provenanceOf(r.parameters))
	}

	r.unhashed = append(r.unhashed, scripts.Parameter{Name: "stack_id", Value: vmlookup.FromContext(ctx).StackID})
	script := c.VolumeID.ApplyT(func(volume string) string { return r.script(volume, args.Host) }).(pulumi.StringOutput)

	return remote.NewCommand(ctx, name+"-build", &remote.CommandArgs{
		Create:                 pulumi.String(hostCommand(actionBuild, args.VMID, r.lockSeconds)),
		Delete:                 pulumi.String(hostCommand(actionRemove, args.VMID, r.lockSeconds)),
		Stdin:                  script,
		Connection:             args.Shell.connection(),
		AddPreviousOutputInEnv: pulumi.Bool(false),
		// Only the provenance replaces the command: the new template overwrites the old one, and the removal of the old one
		// then finds another provenance and does nothing. A change of the script or the connection runs the script again,
		// which finds its work done; a replacement would remove the template.
		Triggers: pulumi.Array{pulumi.String(provenanceOf(r.parameters))},
		Logging:  remote.LoggingStderr, // standard output is that of qm
	}, pulumi.Parent(c), ignoreLogging())
}

// registerImport registers the build of the template through the API.
func (c *GoldenTemplate) registerImport(
	ctx *pulumi.Context, name string, args GoldenTemplateArgs, provenance string,
) (pulumi.Resource, error) {
	req := request.Template{
		Proxmox: ProxmoxSettings(ctx), Host: args.Host, VMID: args.VMID, Name: args.Name,
		Owner: stackPath(ctx), ID: vmlookup.FromContext(ctx).StackID, Provenance: provenance, About: args.about(),
		Datastore: args.Datastore, Bridge: args.Bridge,
		Cores: args.Cores, MemoryMiB: args.Memory, DiskGiB: args.DiskSize,
	}
	stdin := c.VolumeID.ApplyT(func(volume string) (string, error) {
		req.Image = volume
		text, err := json.Marshal(req)

		return string(text), err
	}).(pulumi.StringOutput)

	return registerAPICommand(
		ctx, name+"-build", apiCommand{verb: "template", provenance: provenance, request: stdin}, pulumi.Parent(c),
	)
}

// lockSeconds is how long a script waits for the script of a killed run to end.
const lockSeconds = 1800

// hostCommand returns the command that runs the script on standard input: in the command itself it would appear in full
// in every error message, and sshd passes no environment variables by default. The script of a killed run may still
// run, so its successor waits for the lock.
func hostCommand(action string, vmid, wait int) string {
	return fmt.Sprintf(
		`action=%s flock -w %d /run/lock/talos-proxmox-template-%d.lock bash -c 'eval "$(cat)"'`, action, wait, vmid,
	)
}

// recipe is a build script with its parameters.
type recipe struct {
	compose     func(parameters []scripts.Parameter) string
	parameters  []scripts.Parameter // the contents of the template; the last is the provenance, a digest of the others
	unhashed    []scripts.Parameter // do not affect the contents
	lockSeconds int
}

func newRecipe(a GoldenTemplateArgs, owner string) recipe {
	if a.System != nil {
		return systemRecipe(a.System, a, owner)
	}

	return recipe{compose: scripts.Template, parameters: buildParameters(a, owner), lockSeconds: lockSeconds}
}

// script returns the script for a host, with the volume of the stack's own image.
func (r recipe) script(volume, node string) string {
	host := []scripts.Parameter{{Name: "host", Value: node}}

	return r.compose(slices.Concat(host, withImage(r.parameters, volume), r.unhashed))
}

// buildParameters returns the parameters for a template of Talos.
func buildParameters(a GoldenTemplateArgs, owner string) []scripts.Parameter {
	image := a.ImageDatastore + ":" + spec.Source(a.Source).Content() + "/" + a.Talos.Image(a.Source)

	return withProvenance(a.commonParameters(owner, image, a.about()))
}

// about describes a template of Talos.
func (a GoldenTemplateArgs) about() string {
	return fmt.Sprintf("Talos %s, %s, schematic %s", a.Talos.Version, talos.Arch, a.Talos.SchematicID())
}

// commonParameters returns the parameters of every recipe.
func (a GoldenTemplateArgs) commonParameters(owner, image, about string) []scripts.Parameter {
	return []scripts.Parameter{
		{Name: "owner", Value: owner},
		{Name: "vmid", Value: strconv.Itoa(a.VMID)},
		{Name: "name", Value: a.Name},
		{Name: "image", Value: image},
		{Name: "datastore", Value: a.Datastore},
		{Name: "bridge", Value: a.Bridge},
		{Name: "cores", Value: strconv.Itoa(a.Cores)},
		{Name: "memory", Value: strconv.Itoa(a.Memory)},
		{Name: "disk", Value: strconv.Itoa(a.DiskSize)},
		{Name: "about", Value: about},
	}
}

// withProvenance appends a digest of the parameters.
func withProvenance(parameters []scripts.Parameter) []scripts.Parameter {
	digest := sha256.Sum256([]byte(scripts.Assignments(parameters)))

	return append(parameters, scripts.Parameter{Name: "provenance", Value: hex.EncodeToString(digest[:16])})
}

// withImage sets the volume of the stack's own image. The provenance does not cover it, because it is only a location.
func withImage(parameters []scripts.Parameter, volume string) []scripts.Parameter {
	if volume == "" { // NixOS has none
		return parameters
	}

	parameters = slices.Clone(parameters)
	image := slices.IndexFunc(parameters, func(p scripts.Parameter) bool { return p.Name == "image" })
	parameters[image].Value = volume

	return parameters
}

func provenanceOf(parameters []scripts.Parameter) string { return parameters[len(parameters)-1].Value }

func (a GoldenTemplateArgs) withDefaults(name string) GoldenTemplateArgs {
	if a.System == nil {
		a.Talos = new(talosWithDefaults(orZero(a.Talos)))
	}

	a.System = a.System.WithDefaults()
	a.Shell = new(orZero(a.Shell).withDefaults())
	setDefault(&a.Name, name)
	setDefault(&a.Source, SourceImage)
	setDefault(&a.ImageDatastore, "local")
	setDefault(&a.Datastore, "local-lvm")
	setDefault(&a.Bridge, "vmbr0")
	setDefault(&a.Cores, 4)
	setDefault(&a.Memory, 4096)
	setDefault(&a.DiskSize, 20)

	return a
}

func (a GoldenTemplateArgs) validate(name string) error {
	found := &problem.List{}
	required(found, "host", a.Host, "the Proxmox host, such as pve1")
	checkSource(found, "source", a.Source)

	if a.System == nil {
		checkVersion(found, "talos.version", a.Talos.Version)
	} else {
		validateSystem(a.System, found, a)
	}

	if a.Image == nil && (a.System == nil || a.System.Definition().Format != systems.Backup) {
		found.Add("image", nil,
			"is missing; pass the volume of a TalosImage that is kept in %s on host %s", a.ImageDatastore, a.Host)
	}

	if a.hasVM() && a.VMID < minVMID {
		found.Add("vmid", a.VMID, "is not a VMID; use 100 or higher, or use the source iso")
	}

	if a.Source == SourceImage {
		requiredAddress(found, "shell.address", a.Shell.Address, "the host's, such as 10.0.0.2")
	}

	return problemsOf("template", name, found)
}
