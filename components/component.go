package components

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// step registers a part of a component. The prefix precedes the component's name in errors: "the VM of ".
type step struct {
	prefix string
	run    func() error
}

// register registers a component, runs its steps in order, and registers the outputs that the steps have set. Kind
// names the component in errors.
func register[C pulumi.ComponentResource](
	ctx *pulumi.Context, token, kind, name string, c C, opts []pulumi.ResourceOption, steps ...step,
) (failed C, err error) {
	if _, err := onOwnStack(func() (C, error) {
		return c, ctx.RegisterComponentResource(token, name, c, opts...)
	}); err != nil {
		return failed, fmt.Errorf("unable to register %s %q: %w", kind, name, err)
	}

	for _, s := range steps {
		if err := s.run(); err != nil {
			return failed, fmt.Errorf("unable to register %s%s %q: %w", s.prefix, kind, name, err)
		}
	}

	if err := ctx.RegisterResourceOutputs(c, taggedOutputs(c)); err != nil {
		return failed, fmt.Errorf("unable to register the outputs of %s %q: %w", kind, name, err)
	}

	return c, nil
}

// taggedOutputs returns the fields of a component with a pulumi tag.
func taggedOutputs(c pulumi.ComponentResource) pulumi.Map {
	outputs := pulumi.Map{}

	value := reflect.ValueOf(c).Elem()
	for field := range value.Type().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("pulumi"), ","); name != "" {
			outputs[name] = value.FieldByIndex(field.Index).Interface().(pulumi.Input)
		}
	}

	return outputs
}
