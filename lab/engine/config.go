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
)

// Config is what a user sets by `pulumi config set`: addresses that the lab chose, and its credentials.
type Config struct {
	// Values and Secrets by full key; paths such as talos-proxmox:clusters[0].name are understood.
	Values, Secrets map[string]string
	// Published are secrets that only the published providers take: the stand-ins refuse what would have no effect.
	Published map[string]string
}

// Configure makes the stack and writes its file to the work folder as New does, for commands that read them between
// runs.
func Configure(ctx context.Context, o Options) error {
	e := &Engine{o: o, cli: &cli{CLI: o.CLI}}
	if _, err := os.Stat(e.runningFile()); err == nil {
		return nil // the killed run has written it, and only a recovery may be able to read the state
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

	if err := e.layStackFile(ctx); err != nil {
		return err
	}

	if _, err := os.Stat(e.statePath()); errors.Is(err, fs.ErrNotExist) {
		return e.openStack(ctx, env)
	}

	return nil
}

// layStackFile writes the stack file to the work folder, with the lab's configuration in it. Secrets are encrypted
// here, as `pulumi config set --secret` does, which would take a start of the CLI each.
func (e *Engine) layStackFile(ctx context.Context) error {
	if e.configured() {
		return nil
	}

	path := e.workPath(e.stackFile())

	stack, err := workspace.LoadProjectStackBytes(nil, nil, e.o.StackFile, e.stackFile(), encoding.YAML)
	if err != nil {
		return fmt.Errorf("unable to read stack %q: %w", e.o.Stack, err)
	}

	// Secrets of the state and of the configuration stay under one key; an unreadable copy is rewritten.
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
		return fmt.Errorf("unable to keep the lab's configuration to its owner: %w", err)
	}

	if err := os.WriteFile(e.workPath(configuredFile), []byte(e.configDigest()), 0o600); err != nil {
		return fmt.Errorf("unable to note the lab's configuration: %w", err)
	}

	return nil
}

// setConfig sets the lab's configuration on the stack.
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

// crypter is that of Pulumi's provider of secrets by passphrase, which notes its salt in the stack file, beside a word
// by which it knows its passphrase again.
func (e *Engine) crypter(ctx context.Context, stack *workspace.ProjectStack) (config.Crypter, error) {
	passphrase, err := os.ReadFile(filepath.Join(e.o.Dir, passphraseFile))
	if err != nil {
		return nil, fmt.Errorf("unable to read the lab's passphrase: %w", err)
	}

	if version, rest, _ := strings.Cut(stack.EncryptionSalt, ":"); version == "v1" {
		encoded, _, _ := strings.Cut(rest, ":")
		if salt, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			return derive(string(passphrase), salt), nil
		}
	}

	salt := make([]byte, 8)
	if _, err := rand.Read(salt); err != nil {
		return nil, fmt.Errorf("unable to make a salt: %w", err)
	}

	crypter := derive(string(passphrase), salt)

	word, err := crypter.EncryptValue(ctx, "pulumi")
	if err != nil {
		return nil, fmt.Errorf("unable to encrypt: %w", err)
	}

	stack.EncryptionSalt = "v1:" + base64.StdEncoding.EncodeToString(salt) + ":" + word

	return crypter, nil
}

// derived are the crypters of this process by passphrase and salt.
var derived sync.Map

// derive makes a crypter once: that is slow on purpose.
func derive(passphrase string, salt []byte) config.Crypter {
	key := passphrase + "\x00" + string(salt)
	if crypter, ok := derived.Load(key); ok {
		return crypter.(config.Crypter)
	}

	crypter := config.NewSymmetricCrypterFromPassphrase(passphrase, salt)
	derived.Store(key, crypter)

	return crypter
}

// configuredFile holds the digest of the configuration that the work folder's stack file has, so that an unchanged one
// is not set again.
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
