package stacks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/errorhints"
	"talos-proxmox/internal/tokens"
)

// adviceHook is the hook's name in the state; it must not change.
const adviceHook = "talos-proxmox-advice"

// adviseOnFailure has every resource on Proxmox say, after its provider's error, which machine it is and what to do.
// The hook never asks for a retry: the provider has tried as often as it makes sense.
func (d *deployment) adviseOnFailure(ctx *pulumi.Context) error {
	hook, err := ctx.RegisterErrorHook(adviceHook, func(args *pulumi.ErrorHookArgs) (bool, error) {
		if len(args.Errors) == 0 {
			return false, nil
		}

		subject := subjectOf(ctx.Stack(), args)
		if errorhints.Taken(args.Errors[0]) {
			subject.Holder = d.machines.holder(ctx, subject.VMID)
		}

		said, known := errorhints.For(subject, args.FailedOperation, args.Errors[0])
		if !known && args.Type == tokens.RemoteCommand {
			return false, nil
		}

		return false, ctx.Log.Warn(said, nil)
	})
	if err != nil {
		return fmt.Errorf("unable to register the advice on failures: %w", err)
	}

	updated, err := d.machines.noteUpdates(ctx)
	if err != nil {
		return err
	}

	advised := []*pulumi.ErrorHook{hook}
	option := pulumi.ResourceHooks(&pulumi.ResourceHookBinding{OnError: advised})
	machine := pulumi.ResourceHooks(
		&pulumi.ResourceHookBinding{OnError: advised, AfterUpdate: []*pulumi.ResourceHook{updated}},
	)

	return ctx.RegisterStackTransformation(
		func(args *pulumi.ResourceTransformationArgs) *pulumi.ResourceTransformationResult {
			if !strings.HasPrefix(args.Type, "proxmoxve:") && args.Type != tokens.RemoteCommand {
				return nil
			}

			if args.Type == tokens.VirtualMachine {
				return &pulumi.ResourceTransformationResult{Props: args.Props, Opts: append(args.Opts, machine)}
			}

			return &pulumi.ResourceTransformationResult{Props: args.Props, Opts: append(args.Opts, option)}
		},
	)
}

// subjectOf reads what failed from its properties, the newest that there are.
func subjectOf(stack string, args *pulumi.ErrorHookArgs) errorhints.Subject {
	properties := args.OldInputs
	if len(args.NewInputs) > 0 {
		properties = args.NewInputs
	}

	s := errorhints.Subject{
		Stack: stack, VMID: numberAt(properties, "vmId"), Template: numberAt(properties, "clone", "vmId"),
		Name: cmp.Or(textAt(properties, "name"), args.Name),
		Host: cmp.Or(textAt(properties, "connection", "host"), textAt(properties, "nodeName")),
	}

	if disks := propertyAt(properties, "disks"); disks.IsArray() {
		for _, disk := range disks.AsArray().AsSlice() {
			if disk.IsMap() && disk.AsMap().Get("datastoreId").IsString() {
				s.Datastores = append(s.Datastores, disk.AsMap().Get("datastoreId").AsString())
			}
		}

		slices.Sort(s.Datastores)
		s.Datastores = slices.Compact(s.Datastores)
	}

	return s
}

// propertyAt goes to a property by its path; one that is not there is null.
func propertyAt(properties resource.PropertyMap, path ...string) property.Value {
	value := property.New(resource.FromResourcePropertyMap(properties))

	for _, key := range path {
		if !value.IsMap() {
			return property.Value{}
		}

		value = value.AsMap().Get(key)
	}

	return value
}

func textAt(properties resource.PropertyMap, path ...string) string {
	if value := propertyAt(properties, path...); value.IsString() {
		return value.AsString()
	}

	return ""
}

func numberAt(properties resource.PropertyMap, path ...string) int {
	if value := propertyAt(properties, path...); value.IsNumber() {
		return int(value.AsNumber())
	}

	return 0
}
