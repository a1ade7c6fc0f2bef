package providers

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"talos-proxmox/lab/providers/command"
	"talos-proxmox/lab/providers/internal/serve"
)

// pluginPrefix begins the name of every provider plugin's program.
const pluginPrefix = "pulumi-resource-"

// pollVariable tells a stand-in that runs as a plugin how often to ask for a task's state.
const pollVariable = "LAB_POLL"

// RunAsPlugin serves a stand-in as its own process if that is the name under which this program was started, and
// then ends the program. Like a published plugin it outlives an engine that is killed, and finishes what it has begun.
func RunAsPlugin() {
	name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), pluginPrefix)
	if !ok {
		return
	}

	if err := runPlugin(name); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(0)
}

func runPlugin(name string) error {
	poll, _ := time.ParseDuration(os.Getenv(pollVariable)) //nolint:errcheck // nothing set
	list := standIns(
		options{
			poll: poll, around: command.Surroundings{Env: map[string]string{"SSL_CERT_FILE": os.Getenv("SSL_CERT_FILE")}},
		},
	)

	i := slices.IndexFunc(list, func(p serve.Provider) bool { return p.Name == name })
	if i < 0 {
		return fmt.Errorf("there is no stand-in for %s", name)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	list[i].Outlives = name != "command" // the published one of these is not a bridge: its calls end with their connection

	port, end, err := serve.Start(ctx, list[i])
	if err != nil {
		return err
	}

	fmt.Println(port)
	<-ctx.Done()
	end()

	return nil
}

// Install installs the stand-ins in a PULUMI_HOME as plugins that engines start: the program is one that calls
// RunAsPlugin. The variables are for the engine.
func Install(home, program string, poll time.Duration) (map[string]string, error) {
	for _, plugin := range Plugins() {
		folder := filepath.Join(home, "plugins", fmt.Sprintf("resource-%s-v%s", plugin.Name, plugin.Version))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("unable to make the folder of a plugin: %w", err)
		}

		link := filepath.Join(folder, pluginPrefix+plugin.Name)
		if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("unable to replace a plugin: %w", err)
		}

		if err := os.Symlink(program, link); err != nil {
			return nil, fmt.Errorf("unable to lay down a plugin: %w", err)
		}
	}

	return map[string]string{pollVariable: poll.String()}, nil
}
