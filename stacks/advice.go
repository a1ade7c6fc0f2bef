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

// registerErrorAdvice has every resource on Proxmox log, after its provider's error, which machine it is and what to
// do. The hook never asks for a retry: the provider has already tried as often as makes sense.
func (d *deployment) registerErrorAdvice(ctx *pulumi.Context) error {
	hook, err := ctx.RegisterErrorHook(adviceHook, func(args *pulumi.ErrorHookArgs) (bool, error) {
		if len(args.Errors) == 0 {
			return false, nil
		}

		subject := adviceSubject(ctx.Stack(), args)
		if errorhints.IsTaken(args.Errors[0]) {
			subject.Holder = d.lookup.vmidHolder(ctx, subject.VMID)
		}

		advice, known := errorhints.For(subject, args.FailedOperation, args.Errors[0])
		if !known && args.Type == tokens.RemoteCommand {
			return false, nil
		}

		return false, ctx.Log.Warn(advice, nil)
	})
	if err != nil {
		return fmt.Errorf("unable to register the advice on failures: %w", err)
	}

	hooks, err := d.lookup.registerHooks(ctx)
	if err != nil {
		return err
	}

	onError := []*pulumi.ErrorHook{hook}
	option := pulumi.ResourceHooks(&pulumi.ResourceHookBinding{OnError: onError})
	hooks.OnError = onError
	machine := pulumi.ResourceHooks(hooks)

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

// adviceSubject describes the failed resource by its newest properties.
func adviceSubject(stack string, args *pulumi.ErrorHookArgs) errorhints.Subject {
	properties := args.OldInputs
	if len(args.NewInputs) > 0 {
		properties = args.NewInputs
	}

	s := errorhints.Subject{
		Stack: stack, VMID: numberAt(properties, "vmId"), Template: numberAt(properties, "clone", "vmId"),
		Name: cmp.Or(stringAt(properties, "name"), args.Name),
		Host: cmp.Or(stringAt(properties, "connection", "host"), stringAt(properties, "nodeName")),
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

// propertyAt returns the property at a path, or null.
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

func stringAt(properties resource.PropertyMap, path ...string) string {
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
