package stacks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/advice"
)

// adviceHook is the hook's name in the state; it must not change.
const adviceHook = "talos-proxmox-advice"

// remoteCommand runs on a host; what failed in it may be Proxmox' refusal or anything else.
const remoteCommand = "command:remote:Command"

// adviseOnFailure has every resource on Proxmox say, after its provider's error, which machine it is and what to do.
// The hook never asks for a retry: the provider has tried as often as it makes sense.
func (d *deployment) adviseOnFailure(ctx *pulumi.Context) error {
	hook, err := ctx.RegisterErrorHook(adviceHook, func(args *pulumi.ErrorHookArgs) (bool, error) {
		if len(args.Errors) == 0 {
			return false, nil
		}

		subject := subjectOf(ctx.Stack(), args)
		if advice.Taken(args.Errors[0]) {
			subject.Holder = d.machines.holder(ctx, subject.VMID)
		}

		said, known := advice.For(subject, args.FailedOperation, args.Errors[0])
		if !known && args.Type == remoteCommand {
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
			if !strings.HasPrefix(args.Type, "proxmoxve:") && args.Type != remoteCommand {
				return nil
			}

			if args.Type == typeMachine {
				return &pulumi.ResourceTransformationResult{Props: args.Props, Opts: append(args.Opts, machine)}
			}

			return &pulumi.ResourceTransformationResult{Props: args.Props, Opts: append(args.Opts, option)}
		},
	)
}

// subjectOf reads what failed from its properties, the newest that there are.
func subjectOf(stack string, args *pulumi.ErrorHookArgs) advice.Subject {
	properties := args.OldInputs
	if len(args.NewInputs) > 0 {
		properties = args.NewInputs
	}

	s := advice.Subject{
		Stack: stack, Name: args.Name, Host: stringAt(properties, "nodeName"), VMID: intAt(properties, "vmId"),
	}
	if name := stringAt(properties, "name"); name != "" {
		s.Name = name
	}

	if connection := plain(properties["connection"]); connection.IsObject() {
		s.Host = stringAt(connection.ObjectValue(), "host")
	}

	if clone := plain(properties["clone"]); clone.IsObject() {
		s.Template = intAt(clone.ObjectValue(), "vmId")
	}

	if disks := plain(properties["disks"]); disks.IsArray() {
		for _, disk := range disks.ArrayValue() {
			if disk = plain(disk); disk.IsObject() {
				s.Datastores = append(s.Datastores, stringAt(disk.ObjectValue(), "datastoreId"))
			}
		}

		slices.Sort(s.Datastores)
		s.Datastores = slices.Compact(s.Datastores)
	}

	return s
}

func stringAt(properties resource.PropertyMap, key resource.PropertyKey) string {
	if value := plain(properties[key]); value.IsString() {
		return value.StringValue()
	}

	return ""
}

func intAt(properties resource.PropertyMap, key resource.PropertyKey) int {
	if value := plain(properties[key]); value.IsNumber() {
		return int(value.NumberValue())
	}

	return 0
}

// plain takes the engine's wrapping from a value; one that is not known is none.
func plain(value resource.PropertyValue) resource.PropertyValue {
	switch {
	case value.IsOutput():
		return plain(value.OutputValue().Element)
	case value.IsSecret():
		return plain(value.SecretValue().Element)
	default:
		return value
	}
}
