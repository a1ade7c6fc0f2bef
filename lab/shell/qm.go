package shell

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// subcommand is one of Proxmox' programs: its usage, and the call of the API that it makes with its arguments, or its
// options and what it does.
type subcommand struct {
	usage   string
	call    string // "create /nodes/{node}/qemu"
	options string
	do      func(ctx context.Context, c call, a arguments) error
}

// qm is Proxmox' command for virtual machines.
func (s *Server) qm(ctx context.Context, c call) error {
	const vm = " /nodes/{node}/qemu/{vmid}"

	return s.program(ctx, c, map[string]subcommand{
		"create":   {usage: "qm create <vmid> [OPTIONS]", call: "create /nodes/{node}/qemu"},
		"set":      {usage: "qm set <vmid> [OPTIONS]", call: "create" + vm + "/config"},
		"config":   {usage: "qm config <vmid>", do: s.onVM(qmConfig)},
		"status":   {usage: "qm status <vmid>", do: s.onVM(qmStatus)},
		"list":     {usage: "qm list", do: s.qmList},
		"template": {usage: "qm template <vmid> [OPTIONS]", call: "create" + vm + "/template"},
		"destroy":  {usage: "qm destroy <vmid> [OPTIONS]", call: "delete" + vm},
		"unlock":   {usage: "qm unlock <vmid>", do: s.onVM(s.qmUnlock)},
		"wait":     {usage: "qm wait <vmid> [OPTIONS]", options: "timeout", do: s.onVM(s.qmWait)},
		"start":    {usage: "qm start <vmid> [OPTIONS]", call: "create" + vm + "/status/start"},
		"stop":     {usage: "qm stop <vmid> [OPTIONS]", call: "create" + vm + "/status/stop"},
		"resize":   {usage: "qm disk resize <vmid> <disk> <size> [OPTIONS]", call: "set" + vm + "/resize"},
	})
}

// program carries out one of a program's subcommands, which have up to three words.
func (s *Server) program(ctx context.Context, c call, commands map[string]subcommand) error {
	for words := min(3, len(c.words)-1); words > 0; words-- {
		if sub, known := commands[strings.Join(c.words[1:1+words], " ")]; known {
			return s.carryOut(ctx, c, sub, c.words[1+words:])
		}
	}

	return usageError{fmt.Sprintf(
		"ERROR: unknown command '%s'\nUSAGE: %s <COMMAND> [ARGS] [OPTIONS]\n       commands: %s",
		strings.Join(c.words[:min(2, len(c.words))], " "), c.words[0], strings.Join(slices.Sorted(maps.Keys(commands)), ", "),
	)}
}

// carryOut carries out a subcommand; an object that the API answers with is printed as a table, as there.
func (s *Server) carryOut(ctx context.Context, c call, sub subcommand, words []string) error {
	verb, path, calls := strings.Cut(strings.ReplaceAll(sub.call, "{node}", s.host), " ")

	a, err := parseArguments(words, sub.usage, func(name string) (known, boolean bool) {
		if slices.Contains(strings.Fields(sub.options), name) || !calls {
			return slices.Contains(strings.Fields(sub.options), name), false
		}

		return s.api.Option(verb, path, name)
	})
	if err != nil {
		return err
	}

	if !calls {
		return sub.do(ctx, c, a)
	}

	values := a.parameters()
	if err := s.hostFiles(c, values); err != nil {
		return err
	}

	for name, value := range values {
		if in := "{" + name + "}"; strings.Contains(path, in) {
			path = strings.ReplaceAll(path, in, value[0])

			delete(values, name)
		}
	}

	if strings.HasSuffix(path, "/config") && len(values) > 0 {
		c.printf("update VM %s: %s\n", a.fixed[0], change(values))
	}

	answer, err := s.callAPI(ctx, c, verb, path, values)
	if made, isObject := answer.(map[string]any); err == nil && isObject {
		c.printObject(made)
	}

	return err
}

// change is how `qm set` shows what it does.
func change(values map[string][]string) string {
	var said []string

	for _, key := range slices.Sorted(maps.Keys(values)) {
		if key != "digest" && key != "skiplock" {
			said = append(said, "-"+key+" "+strings.Join(values[key], ","))
		}
	}

	return strings.Join(said, " ")
}

// task waits for a worker, shows what it logs and fails as it does. When the client goes away, the worker is stopped.
func (s *Server) task(ctx context.Context, c call, upid string) error {
	stop := context.AfterFunc(ctx, func() { s.dc.StopTask(upid) })
	defer stop()

	// The worker's end is waited for even then: it rolls back what it had half done.
	task, err := s.dc.WaitTask(context.WithoutCancel(ctx), upid)
	if err != nil {
		return err
	}

	if ctx.Err() != nil {
		return ctx.Err()
	}

	for _, line := range s.dc.TaskLog(upid) {
		if !strings.HasPrefix(line, "TASK ") {
			c.printf("%s\n", line)
		}
	}

	if !task.OK() {
		return fmt.Errorf("%s", task.ExitStatus)
	}

	return nil
}

// hostFiles turns paths below the root folder, which pvesm path prints, into the host's own, and the name of the file
// of public keys into its content (param_mapping of PVE::CLI::qm).
func (s *Server) hostFiles(c call, values map[string][]string) error {
	if name, stated := values["sshkeys"]; stated {
		keys, err := os.ReadFile(s.inside(c.Dir, name[0]))
		if err != nil {
			return fmt.Errorf("can't open '%s' - %s", name[0], reason(err))
		}

		values["sshkeys"] = []string{strings.ReplaceAll(url.QueryEscape(string(keys)), "+", "%20")}
	}

	for key, value := range values {
		if !datacentre.IsDrive(key) {
			continue
		}

		properties := datacentre.ParseProperties(key, value[0])
		for name, part := range properties {
			properties[name] = s.outside(part)
		}

		values[key] = []string{properties.Format(key)}
	}

	return nil
}
