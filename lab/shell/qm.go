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

// subcommand is one of Proxmox' programs: its usage, the call of the API that it makes with its arguments, if any, and
// how it shows the answer. own are options of the program itself.
type subcommand struct {
	usage string
	call  string // "create /nodes/{node}/qemu"
	own   string
	show  func(ctx context.Context, c call, a arguments, answer any) error
}

// qm is Proxmox' command for virtual machines.
func (s *Server) qm(ctx context.Context, c call) error {
	const vm = " /nodes/{node}/qemu/{vmid}"

	return s.program(ctx, c, map[string]subcommand{
		"create":   {usage: "qm create <vmid> [OPTIONS]", call: "create /nodes/{node}/qemu"},
		"set":      {usage: "qm set <vmid> [OPTIONS]", call: "create" + vm + "/config"},
		"config":   {usage: "qm config <vmid> [OPTIONS]", call: "get" + vm + "/config", show: qmConfig},
		"status":   {usage: "qm status <vmid>", call: "get" + vm + "/status/current", show: qmStatus},
		"list":     {usage: "qm list", call: "get /nodes/{node}/qemu", show: qmList},
		"template": {usage: "qm template <vmid> [OPTIONS]", call: "create" + vm + "/template"},
		"destroy":  {usage: "qm destroy <vmid> [OPTIONS]", call: "delete" + vm},
		"unlock":   {usage: "qm unlock <vmid>", call: "get" + vm + "/status/current", show: s.qmUnlock},
		"wait":     {usage: "qm wait <vmid> [OPTIONS]", call: "get" + vm + "/status/current", own: "timeout", show: s.qmWait},
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
	own := strings.Fields(sub.own)

	a, err := parseArguments(words, sub.usage, func(name string) (known, boolean bool) {
		if slices.Contains(own, name) {
			return true, false
		}

		return s.api.Option(verb, path, name)
	})
	if err != nil {
		return err
	}

	values := a.parameters()
	if err := s.hostFiles(c, values); err != nil {
		return err
	}

	for name, value := range values {
		if in := "{" + name + "}"; slices.Contains(own, name) || strings.Contains(path, in) {
			path = strings.ReplaceAll(path, in, value[0])

			delete(values, name)
		}
	}

	if verb == "create" && strings.HasSuffix(path, "/config") && len(values) > 0 {
		c.printf("update VM %s: %s\n", a.fixed[0], change(values))
	}

	var answer any
	if calls {
		if answer, err = s.callAPI(ctx, c, verb, path, values); err != nil {
			return withUsage(err, sub.usage)
		}
	}

	made, isObject := answer.(map[string]any)

	switch {
	case sub.show != nil:
		return sub.show(ctx, c, a, answer)
	case isObject:
		c.printObject(made)
	}

	return nil
}

// callAPI calls Proxmox' API as root and waits for the task that it starts.
func (s *Server) callAPI(
	ctx context.Context, c call, command, path string, values map[string][]string,
) (answer any, err error) {
	answer, err = s.api.Call(ctx, command, path, values)
	if upid, isText := answer.(string); err == nil && isText && strings.HasPrefix(upid, "UPID:") {
		err = s.task(ctx, c, upid)
	}

	return answer, err
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
