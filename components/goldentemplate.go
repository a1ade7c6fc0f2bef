package components

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/pulumi/pulumi-command/sdk/go/command/remote"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"proxmox-talos/components/scripts"
	"proxmox-talos/internal/spec"
	"proxmox-talos/internal/talos"
)

// GoldenTemplateType is the type token of [GoldenTemplate].
const GoldenTemplateType = "talos-proxmox:template:GoldenTemplate"

// Actions of the build script.
const (
	actionBuild  = "build"
	actionRemove = "remove"
)

// GoldenTemplateArgs describe the template of one class on one host.
type GoldenTemplateArgs struct {
	Template spec.Template
	// Image is kept on the template's host and image datastore.
	Image *TalosImage
	// Shell of the template's host; unused for SourceISO.
	Shell HostShell
}

// GoldenTemplate is what nodes of one class on one host are made from: a VM template built from a disk image, or the ISO that nodes boot (SourceISO, no VM).
// It holds the operating system only: no configuration, no identity.
type GoldenTemplate struct {
	pulumi.ResourceState

	// VMID of the template; 0 for SourceISO.
	VMID pulumi.IntOutput    `pulumi:"vmid"`
	Name pulumi.StringOutput `pulumi:"name"`
	Host pulumi.StringOutput `pulumi:"host"`
	// VolumeID of the downloaded file: local:iso/talos-….
	VolumeID    pulumi.StringOutput `pulumi:"volumeId"`
	SchematicID pulumi.StringOutput `pulumi:"schematicId"`
	Version     pulumi.StringOutput `pulumi:"version"`

	ready pulumi.Resource
}

// NewGoldenTemplate builds the template, or for SourceISO names the ISO.
func NewGoldenTemplate(ctx *pulumi.Context, name string, args GoldenTemplateArgs, opts ...pulumi.ResourceOption) (*GoldenTemplate, error) {
	args = args.withDefaults()
	if err := args.validate(); err != nil {
		return nil, fmt.Errorf("template %q: %w", name, err)
	}

	c := &GoldenTemplate{}
	if err := ctx.RegisterComponentResource(GoldenTemplateType, name, c, opts...); err != nil {
		return nil, fmt.Errorf("unable to register template %q: %w", name, err)
	}

	t := args.Template
	c.ready = args.Image.File(args.store())
	c.VolumeID = args.Image.volume(args.store())
	if t.Source == spec.SourceImage {
		build, err := c.build(ctx, name, args)
		if err != nil {
			return nil, fmt.Errorf("unable to register the build of template %q: %w", name, err)
		}
		c.ready = build
	}

	c.VMID = pulumi.Int(t.VMID).ToIntOutput()
	c.Name = pulumi.String(t.Name).ToStringOutput()
	c.Host = pulumi.String(t.Host).ToStringOutput()
	c.SchematicID = args.Image.SchematicID
	c.Version = pulumi.String(t.Version).ToStringOutput()
	if err := ctx.RegisterResourceOutputs(c, pulumi.Map{
		"vmid": c.VMID, "name": c.Name, "host": c.Host, "volumeId": c.VolumeID, "schematicId": c.SchematicID, "version": c.Version,
	}); err != nil {
		return nil, fmt.Errorf("unable to register the outputs of template %q: %w", name, err)
	}

	return c, nil
}

// Ready is the resource to wait for before a node is made. Nodes depend on it without taking a property from it: a property would have the engine judge
// whether they are replaced along with it.
func (c *GoldenTemplate) Ready() pulumi.Resource { return c.ready }

// SchematicOf returns the schematic of a template's class.
func SchematicOf(t spec.Template) talos.Schematic {
	return talos.Schematic{Extensions: t.Extensions, KernelArgs: t.KernelArgs}
}

// ImageOf returns the name of a template's image, which says what is in it.
func ImageOf(t spec.Template) string {
	return ImageName(SchematicOf(t).ID(), t.Version, t.Platform, t.Source)
}

func (c *GoldenTemplate) build(ctx *pulumi.Context, name string, args GoldenTemplateArgs) (*remote.Command, error) {
	parameters := buildParameters(args.Template, stackOwner(ctx))
	script := c.VolumeID.ApplyT(func(volume string) string {
		return buildScript(withImage(parameters, volume), args.Template)
	}).(pulumi.StringOutput)

	return remote.NewCommand(ctx, name+"-build", &remote.CommandArgs{
		Create:                 pulumi.String(hostCommand(actionBuild, args.Template)),
		Delete:                 pulumi.String(hostCommand(actionRemove, args.Template)),
		Stdin:                  script,
		Connection:             args.Shell.connection(),
		AddPreviousOutputInEnv: pulumi.Bool(false),
		// Only the provenance: a new template takes the place of the old one, whose removal then finds nothing of its own. A change of the script or of the
		// connection runs the script again, which finds its work done; replacing would have the removal find it too.
		Triggers: pulumi.Array{pulumi.String(provenanceOf(parameters))},
	}, pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{args.Image.File(args.store())}))
}

// hostCommand runs the script on standard input: in the command itself it would stand in full in every error message, and sshd passes no environment on by
// default. A killed run's script may live on; its successor waits for the lock.
func hostCommand(action string, t spec.Template) string {
	return fmt.Sprintf(`action=%s flock -w 1800 /run/lock/talos-proxmox-template-%d.lock bash -c 'eval "$(cat)"'`, action, t.VMID)
}

// buildScript also names the host it is meant for, which is no part of what the template is.
func buildScript(parameters []scripts.Parameter, t spec.Template) string {
	return scripts.Template(append([]scripts.Parameter{{Name: "host", Value: t.Host}}, parameters...))
}

// buildParameters are everything that decides what the template is, then its provenance, which is a digest of them.
func buildParameters(t spec.Template, owner string) []scripts.Parameter {
	parameters := []scripts.Parameter{
		{Name: "owner", Value: owner},
		{Name: "vmid", Value: strconv.Itoa(t.VMID)},
		{Name: "name", Value: t.Name},
		{Name: "image", Value: t.ImageDatastore + ":iso/" + ImageOf(t)},
		{Name: "datastore", Value: t.Datastore},
		{Name: "bridge", Value: t.Bridge},
		{Name: "cores", Value: strconv.Itoa(t.Cores)},
		{Name: "memory", Value: strconv.Itoa(t.MemoryMiB)},
		{Name: "disk", Value: strconv.Itoa(t.DiskGiB)},
		{Name: "about", Value: fmt.Sprintf("Talos %s, %s, schematic %s", t.Version, talos.Arch, SchematicOf(t).ID())},
	}
	digest := sha256.Sum256([]byte(scripts.Assignments(parameters)))

	return append(parameters, scripts.Parameter{Name: "provenance", Value: hex.EncodeToString(digest[:16])})
}

// withImage names the stack's own file of the image. The provenance leaves it out: it says what the template is made of, not where that is kept.
func withImage(parameters []scripts.Parameter, volume string) []scripts.Parameter {
	own := slices.Clone(parameters)
	own[slices.IndexFunc(own, func(p scripts.Parameter) bool { return p.Name == "image" })].Value = volume

	return own
}

func provenanceOf(parameters []scripts.Parameter) string { return parameters[len(parameters)-1].Value }

func (a GoldenTemplateArgs) store() ImageStore {
	return ImageStore{Host: a.Template.Host, Datastore: a.Template.ImageDatastore}
}

func (a GoldenTemplateArgs) withDefaults() GoldenTemplateArgs {
	if a.Template.Source == "" {
		a.Template.Source = spec.SourceImage
	}
	if a.Template.Platform == "" {
		a.Template.Platform = "nocloud"
	}

	return a
}

func (a GoldenTemplateArgs) validate() error {
	t := a.Template
	if a.Image == nil {
		return errors.New("no image: make a TalosImage first")
	}
	if a.Image.File(a.store()) == nil {
		return fmt.Errorf("its image is not kept in %s on host %s: add that store to the TalosImage", t.ImageDatastore, t.Host)
	}
	if t.Source == spec.SourceImage && t.VMID == 0 {
		return errors.New("no VMID: state one, or use the source iso")
	}
	if t.Source == spec.SourceImage && !a.Shell.Address.IsValid() {
		return fmt.Errorf("no address of host %s: the template is built in its shell; state it, or use the source iso", t.Host)
	}

	return nil
}
