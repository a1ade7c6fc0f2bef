package components

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// step makes a part of a component. Of is what its error says before the component: "the VM of ".
type step struct {
	of   string
	make func() error
}

// register does what every component does: it registers the component, makes its parts in order, and registers its
// outputs, which the parts have set. Kind is what people call it.
func register[C pulumi.ComponentResource](
	ctx *pulumi.Context, token, kind, name string, c C, opts []pulumi.ResourceOption, steps ...step,
) (failed C, err error) {
	if err := ctx.RegisterComponentResource(token, name, c, opts...); err != nil {
		return failed, fmt.Errorf("unable to register %s %q: %w", kind, name, err)
	}

	for _, s := range steps {
		if err := s.make(); err != nil {
			return failed, fmt.Errorf("unable to register %s%s %q: %w", s.of, kind, name, err)
		}
	}

	if err := ctx.RegisterResourceOutputs(c, outputsOf(c)); err != nil {
		return failed, fmt.Errorf("unable to register the outputs of %s %q: %w", kind, name, err)
	}

	return c, nil
}

// outputsOf are the fields of a component that have a name in other languages.
func outputsOf(c pulumi.ComponentResource) pulumi.Map {
	outputs := pulumi.Map{}

	value := reflect.ValueOf(c).Elem()
	for field := range value.Type().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("pulumi"), ","); name != "" {
			outputs[name] = value.FieldByIndex(field.Index).Interface().(pulumi.Input)
		}
	}

	return outputs
}
