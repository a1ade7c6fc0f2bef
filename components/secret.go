package components

import (
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// secretText marks a text that follows from something stored encrypted.
func secretText(secret bool, text string) pulumi.StringInput {
	if secret {
		return pulumi.ToSecret(pulumi.String(text)).(pulumi.StringOutput)
	}

	return pulumi.String(text)
}

// secretTexts marks a list of which some follow from something stored encrypted. All of it is marked, since the engine
// does so with every list that goes through a provider without secrets of its own, as bridged ones are.
func secretTexts(secret bool, texts pulumi.StringArrayInput) pulumi.StringArrayInput {
	if secret {
		return pulumi.ToSecret(texts).(pulumi.StringArrayOutput)
	}

	return texts
}

// holdsSecrets says whether the machine configurations of a cluster hold something stored encrypted.
func holdsSecrets(a TalosClusterArgs) bool {
	return a.Secret || a.CNI != nil && a.CNI.Secret ||
		slices.ContainsFunc(a.Nodes, func(n ClusterNode) bool { return n.Secret })
}

// withoutDetails is an error about a node's machine configuration, which may quote it, as it may be shown.
func withoutDetails(n ClusterNode, err error) error {
	if err == nil || !n.Secret {
		return err
	}

	return fmt.Errorf("machine configuration of %q: cannot be made of its patches, labels and taints, "+
		"and why is not said of encrypted ones: try them in plain text on the lab", n.Name)
}
