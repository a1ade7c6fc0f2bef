package rules

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/tokens"
)

func TestRequiredTags(t *testing.T) {
	t.Parallel()

	all := options{"nodes": []any{"talos"}, "machines": []any{"managed"}}
	component := newResource("talos-proxmox:node:TalosNode", "n", nil)
	bare := newResource(tokens.VirtualMachine, "a", props{"name": "a"})

	for name, c := range map[string]struct {
		options options
		machine resource
		want    []string // nil = unchanged
	}{
		"a node has them":              {options{"nodes": []any{"talos"}}, cp("a", "p", 1), nil},
		"a node without any":           {options{"nodes": []any{"talos"}}, bare.in(component), []string{"talos"}},
		"others are kept, all sorted":  {all, cp("a", "p", 1), []string{"cluster-one", "controlplane", "managed", "talos"}},
		"another machine":              {all, bare, []string{"managed"}},
		"another machine, none needed": {options{"nodes": []any{"talos"}}, bare, nil},
		"a template is no node":        {all, bare.with(props{"template": true}).in(component), []string{"managed"}},
		"tags not known yet":           {all, bare.with(props{"tags": unknown}), nil},
		"tags of another kind":         {all, bare.with(props{"tags": 5}), nil},
		"secret tags stay secret":      {all, bare.with(props{"tags": secret{[]string{"x"}}}), []string{"managed", "x"}},
		"no machine":                   {all, file(nil), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			changed := addTags(c.options, c.machine)
			if c.want == nil {
				assert.Nil(t, changed)

				return
			}

			after := c.machine
			after.Properties = root(*changed)
			assert.Equal(t, c.want, readMachine(after).Tags.Value)
			assert.Equal(t, c.machine.at("tags").property.Secret(), after.at("tags").property.Secret())
			assert.Equal(t, c.machine.at("name"), after.at("name"), "nothing else changes")
			assert.Nil(t, addTags(c.options, after), "the second time there is nothing to do")
		})
	}
}
