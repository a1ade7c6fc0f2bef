package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
)

// Config is what a user sets by `pulumi config set`: addresses that the lab chose, and its credentials.
type Config struct {
	// Values and Secrets by full key; paths such as talos-proxmox:clusters[0].name are understood.
	Values, Secrets map[string]string
	// Published are secrets that only the published providers take: the stand-ins refuse what would have no effect.
	Published map[string]string
}

// configure sets the lab's configuration on the stack. Secrets go to the CLI's standard input: an argument list can be read by every process of the machine.
func (e *Engine) configure(ctx context.Context) error {
	if e.configured() {
		return nil
	}

	values := auto.ConfigMap{}
	for key, value := range e.o.Config.Values {
		values[key] = auto.ConfigValue{Value: value}
	}

	if len(values) > 0 {
		if err := e.stack.SetAllConfigWithOptions(ctx, values, &auto.ConfigOptions{Path: true}); err != nil {
			return fmt.Errorf("unable to set the lab's configuration: %w", err)
		}
	}

	for _, key := range sortedKeys(e.o.Config.Secrets) {
		workspace := e.stack.Workspace()
		env := []string{"PULUMI_HOME=" + workspace.PulumiHome()}

		for name, value := range workspace.GetEnvVars() {
			env = append(env, name+"="+value)
		}

		_, stderr, _, err := e.cli.Run(ctx, workspace.WorkDir(), strings.NewReader(e.o.Config.Secrets[key]), nil, nil, env,
			"config", "set", "--secret", "--path", "--stack", e.o.Stack, key)
		if err != nil {
			return fmt.Errorf("unable to set the lab's secret %s: %w: %s", key, err, stderr)
		}
	}

	if err := os.WriteFile(e.workPath(configuredFile), []byte(e.configDigest()), 0o600); err != nil {
		return fmt.Errorf("unable to note the lab's configuration: %w", err)
	}

	return nil
}

// configuredFile holds the digest of the configuration that the work folder's stack file has, so that an unchanged one is not set again.
const configuredFile = "configured"

func (e *Engine) configured() bool {
	digest, err := os.ReadFile(e.workPath(configuredFile))

	return err == nil && string(digest) == e.configDigest()
}

func (e *Engine) configDigest() string {
	b, err := json.Marshal(struct {
		Stack  string
		File   []byte
		Config Config
	}{e.o.Stack, e.o.StackFile, e.o.Config})
	if err != nil { // strings and bytes always marshal
		panic(err)
	}

	sum := sha256.Sum256(b)

	return hex.EncodeToString(sum[:])
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}

	slices.Sort(keys)

	return keys
}
