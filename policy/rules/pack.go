// Package rules implements the policies of the pack. Each has a name, a description, a level and a check, which is a
// pure function of the plan. docs/policies.md is generated from them.
package rules

import (
	"context"
	"fmt"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/policyx"

	"talos-proxmox/internal/problem"
)

// PackName is the pack's name.
const PackName = "talos-proxmox-policy"

// version of the pack.
const version = "1.0.0"

// policy is one rule. Exactly one of Stack, Resource and Remediate is set.
type policy struct {
	Name        string
	Description string // one sentence, shown with every violation
	Reason      string // why, for docs/policies.md
	Advisory    bool   // warns instead of refusing
	Options     []option

	// Stack checks the whole plan, at the end of a preview and of an update.
	Stack func(plan) problem.List
	// Resource returns the check of one resource before it is created, which may have state for one run. It is for values
	// that only the update knows, and for policies with options.
	Resource func() func(settings, options, resource) problem.List
	// Remediate returns a resource's changed properties; nil = nothing to change.
	Remediate func(options, resource) *property.Map
}

// option is a key of a policy's configuration.
type option struct {
	Key, Doc string
	Schema   map[string]any // JSON schema, with its default
}

// options are the configuration of a policy, with defaults filled in by the engine.
type options map[string]any

// policies returns all policies, in the order of docs/policies.md.
func policies() []policy {
	var all []policy
	for _, topic := range [][]policy{
		topologyPolicies(), passthroughPolicies(), capacityPolicies(), versionPolicies(),
		imagePolicies(),
		secretPolicies(), privilegePolicies(), productionPolicies(), tagPolicies(),
	} {
		all = append(all, topic...)
	}

	return all
}

// NewPack creates the pack for a stack.
func NewPack(ctx *pulumi.Context) (policyx.PolicyPack, error) {
	s, err := readSettings(ctx.Stack(), ctx.GetConfig)
	if err != nil {
		return nil, err
	}

	var list []policyx.Policy

	plans := &planCache{settings: s}
	for _, p := range policies() {
		list = append(list, p.register(plans))
	}

	pack, err := policyx.NewPolicyPack(PackName, semver.MustParse(version), policyx.EnforcementLevelMandatory, list)
	if err != nil {
		return nil, fmt.Errorf("unable to create the policy pack: %w", err)
	}

	return pack, nil
}

func (p policy) level() policyx.EnforcementLevel {
	switch {
	case p.Remediate != nil:
		return policyx.EnforcementLevelRemediate
	case p.Advisory:
		return policyx.EnforcementLevelAdvisory
	default:
		return policyx.EnforcementLevelMandatory
	}
}

func (p policy) schema() *policyx.ConfigSchema {
	if len(p.Options) == 0 {
		return nil
	}

	schema := &policyx.ConfigSchema{Properties: map[string]map[string]any{}}
	for _, o := range p.Options {
		schema.Properties[o.Key] = o.Schema
	}

	return schema
}

func (p policy) register(plans *planCache) policyx.Policy {
	switch {
	case p.Remediate != nil:
		return policyx.NewResourceRemediationPolicy(p.Name, policyx.ResourceRemediationPolicyArgs{
			Description: p.Description, ConfigSchema: p.schema(),
			RemediateResource: func(_ context.Context, args policyx.ResourceRemediationArgs) (*property.Map, error) {
				return p.Remediate(args.Config, readResource(args.Resource)), nil
			},
		})
	case p.Resource != nil:
		check := p.Resource()

		return policyx.NewResourceValidationPolicy(p.Name, policyx.ResourceValidationPolicyArgs{
			Description: p.Description, EnforcementLevel: p.level(), ConfigSchema: p.schema(),
			ValidateResource: func(_ context.Context, args policyx.ResourceValidationArgs) error {
				r := readResource(args.Resource)
				report(args.Manager, check(plans.settings, args.Config, r), map[string]resource{r.URN: r})

				return nil
			},
		})
	default:
		return policyx.NewStackValidationPolicy(p.Name, policyx.StackValidationPolicyArgs{
			Description: p.Description, EnforcementLevel: p.level(), ConfigSchema: p.schema(),
			ValidateStack: func(_ context.Context, args policyx.StackValidationArgs) error {
				plan := plans.planOf(args.Resources)
				report(args.Manager, p.Stack(plan), plan.byURN)

				return nil
			},
		})
	}
}

// planCache is the plan that policyx passed last: it passes the same list to one policy after the other.
type planCache struct {
	settings settings
	list     []policyx.AnalyzerResource
	plan     plan
}

func (w *planCache) planOf(list []policyx.AnalyzerResource) plan {
	if len(list) == 0 || len(list) != len(w.list) || &list[0] != &w.list[0] {
		resources := make([]resource, len(list))
		for i, r := range list {
			resources[i] = readResource(r)
		}

		w.list, w.plan = list, newPlan(w.settings, resources)
	}

	return w.plan
}

// report reports problems to the engine, without secrets of the resource.
func report(manager policyx.PolicyManager, found problem.List, resources map[string]resource) {
	for _, p := range found {
		manager.ReportViolation(resources[p.Heading].redact(p), p.Heading)
	}
}

// number returns an option that the schema declares as a number.
func (o options) number(key string) float64 {
	n, _ := o[key].(float64)

	return n
}

// strings returns an option that the schema declares as a list of strings.
func (o options) strings(key string) []string {
	list, _ := o[key].([]any)

	var texts []string

	for _, item := range list {
		if text, ok := item.(string); ok {
			texts = append(texts, text)
		}
	}

	return texts
}
