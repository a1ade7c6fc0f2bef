package components

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// secretText returns a text, as a secret if it is derived from something stored encrypted.
func secretText(secret bool, text string) pulumi.StringInput {
	if secret {
		return pulumi.ToSecret(pulumi.String(text)).(pulumi.StringOutput)
	}

	return pulumi.String(text)
}

// redactSecretError removes the details from an error about a node's machine configuration if they could quote secrets.
func redactSecretError(n ClusterNode, err error) error {
	if err == nil || !n.Secret {
		return err
	}

	return fmt.Errorf("machine configuration of %q: cannot be generated from its patches, labels and taints; the reason "+
		"is hidden, because some are encrypted: try them in plain text on the lab", n.Name)
}
