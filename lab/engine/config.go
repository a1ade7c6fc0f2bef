package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/common/encoding"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/config"
	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"

	"talos-proxmox/stacks"
)

// Config is what a user would set with `pulumi config set`: addresses that the lab chose, and its credentials.
type Config struct {
	// Values and Secrets are by full key; paths such as talos-proxmox:clusters[0].name are understood.
	Values, Secrets map[string]string
	// Published are secrets for the published providers only: the stand-ins refuse settings without an effect.
	Published map[string]string
}

// Configure creates the stack and writes its file to the work folder as New does, for commands that read them between
// runs.
func Configure(ctx context.Context, o Options) error {
	e := &Engine{o: o.withDefaults(), cli: &cli{CLI: o.CLI}}
	if _, err := os.Stat(e.runningFile()); err == nil {
		return nil // the killed run wrote it, and the state may be unreadable until it is recovered
	}

	if err := e.prepare(); err != nil {
		return err
	}

	env, err := e.environment()
	if err != nil {
		return err
	}

	if err := e.chooseProviders(); err != nil {
		return err
	}

	if err := e.writeStackFile(ctx); err != nil {
		return err
	}

	if _, err := os.Stat(e.statePath()); errors.Is(err, fs.ErrNotExist) {
		return e.openStack(ctx, env)
	}

	return nil
}

// writeStackFile writes the stack file to the work folder, with the lab's configuration in it. It encrypts secrets as
// `pulumi config set --secret` does, which would take one start of the CLI for each.
func (e *Engine) writeStackFile(ctx context.Context) error {
	if e.isConfigured() {
		return nil
	}

	path := e.workPath(e.stackFile())

	stack, err := workspace.LoadProjectStackBytes(nil, nil, e.o.StackFile, e.stackFile(), encoding.YAML)
	if err != nil {
		return stacks.YAMLError(e.stackFile(), e.o.StackFile, err)
	}

	// Secrets of the state and of the configuration share one key; an unreadable copy is rewritten.
	if earlier, err := workspace.LoadProjectStack(nil, nil, path); err == nil {
		stack.EncryptionSalt = earlier.EncryptionSalt
	}

	if err := e.setConfig(ctx, stack); err != nil {
		return err
	}

	if err := stack.Save(path); err != nil {
		return fmt.Errorf("unable to write the lab's configuration: %w", err)
	}

	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("unable to restrict the lab's configuration to its owner: %w", err)
	}

	if err := os.WriteFile(e.workPath(configuredFile), []byte(e.configDigest()), 0o600); err != nil {
		return fmt.Errorf("unable to record the lab's configuration: %w", err)
	}

	return nil
}

// setConfig sets the lab's configuration in the stack file.
func (e *Engine) setConfig(ctx context.Context, stack *workspace.ProjectStack) error {
	crypter, err := e.crypter(ctx, stack)
	if err != nil {
		return err
	}

	set := func(name string, value config.Value) error {
		key, err := config.ParseKey(name)
		if err == nil {
			err = stack.Config.Set(key, value, true)
		}

		if err != nil {
			return fmt.Errorf("unable to set %s: %w", name, err)
		}

		return nil
	}

	for _, name := range slices.Sorted(maps.Keys(e.o.Config.Values)) {
		if err := set(name, config.NewValue(e.o.Config.Values[name])); err != nil {
			return err
		}
	}

	for _, name := range slices.Sorted(maps.Keys(e.o.Config.Secrets)) {
		encrypted, err := crypter.EncryptValue(ctx, e.o.Config.Secrets[name])
		if err != nil {
			return fmt.Errorf("unable to encrypt %s: %w", name, err)
		}

		if err := set(name, config.NewSecureValue(encrypted)); err != nil {
			return err
		}
	}

	return nil
}

// crypter returns the crypter of Pulumi's passphrase secrets provider, which keeps its salt in the stack file, beside a
// word that verifies the passphrase.
func (e *Engine) crypter(ctx context.Context, stack *workspace.ProjectStack) (config.Crypter, error) {
	passphrase, err := os.ReadFile(filepath.Join(e.o.Dir, passphraseFile))
	if err != nil {
		return nil, fmt.Errorf("unable to read the lab's passphrase: %w", err)
	}

	if version, rest, _ := strings.Cut(stack.EncryptionSalt, ":"); version == "v1" {
		encoded, _, _ := strings.Cut(rest, ":")
		if salt, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			return cachedCrypter(string(passphrase), salt), nil
		}
	}

	salt := make([]byte, 8)
	if _, err := rand.Read(salt); err != nil {
		return nil, fmt.Errorf("unable to generate a salt: %w", err)
	}

	crypter := cachedCrypter(string(passphrase), salt)

	word, err := crypter.EncryptValue(ctx, "pulumi")
	if err != nil {
		return nil, fmt.Errorf("unable to encrypt: %w", err)
	}

	stack.EncryptionSalt = "v1:" + base64.StdEncoding.EncodeToString(salt) + ":" + word

	return crypter, nil
}

// crypters are cached for this process by passphrase and salt.
var crypters sync.Map

// cachedCrypter derives a crypter once: the derivation is slow on purpose.
func cachedCrypter(passphrase string, salt []byte) config.Crypter {
	key := passphrase + "\x00" + string(salt)
	if crypter, ok := crypters.Load(key); ok {
		return crypter.(config.Crypter)
	}

	crypter := config.NewSymmetricCrypterFromPassphrase(passphrase, salt)
	crypters.Store(key, crypter)

	return crypter
}

// configuredFile holds the digest of the configuration in the work folder's stack file, so that an unchanged one is not
// set again.
const configuredFile = "configured"

func (e *Engine) isConfigured() bool {
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
