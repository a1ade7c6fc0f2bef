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

// subcommand describes a subcommand of a Proxmox command: its usage, the API call that it makes with its arguments, if
// any, and how it prints the result. ownOptions are not passed to the API.
type subcommand struct {
	usage      string
	apiCall    string // "create /nodes/{node}/qemu"
	ownOptions string
	fixed      string // a Boolean parameter that is always sent
	print      func(ctx context.Context, c call, a arguments, answer any) error
}

// qm is Proxmox' command for virtual machines.
func (s *Server) qm(ctx context.Context, c call) error {
	const vm = " /nodes/{node}/qemu/{vmid}"

	return s.dispatch(ctx, c, map[string]subcommand{
		"create":   {usage: "qm create <vmid> [OPTIONS]", apiCall: "create /nodes/{node}/qemu"},
		"set":      {usage: "qm set <vmid> [OPTIONS]", apiCall: "create" + vm + "/config"},
		"config":   {usage: "qm config <vmid> [OPTIONS]", apiCall: "get" + vm + "/config", print: qmConfig},
		"status":   {usage: "qm status <vmid>", apiCall: "get" + vm + "/status/current", print: qmStatus},
		"list":     {usage: "qm list", apiCall: "get /nodes/{node}/qemu", print: qmList},
		"template": {usage: "qm template <vmid> [OPTIONS]", apiCall: "create" + vm + "/template"},
		"destroy":  {usage: "qm destroy <vmid> [OPTIONS]", apiCall: "delete" + vm},
		"unlock":   {usage: "qm unlock <vmid>", apiCall: "get" + vm + "/status/current", print: s.qmUnlock},
		"wait":     {usage: "qm wait <vmid> [OPTIONS]", apiCall: "get" + vm + "/status/current", ownOptions: "timeout", print: s.qmWait},
		"start":    {usage: "qm start <vmid> [OPTIONS]", apiCall: "create" + vm + "/status/start"},
		"stop":     {usage: "qm stop <vmid> [OPTIONS]", apiCall: "create" + vm + "/status/stop"},
		"resize":   {usage: "qm disk resize <vmid> <disk> <size> [OPTIONS]", apiCall: "set" + vm + "/resize"},
	})
}

// dispatch runs a subcommand, whose name has up to three words.
func (s *Server) dispatch(ctx context.Context, c call, commands map[string]subcommand) error {
	for words := min(3, len(c.words)-1); words > 0; words-- {
		if sub, known := commands[strings.Join(c.words[1:1+words], " ")]; known {
			return s.runSubcommand(ctx, c, sub, c.words[1+words:])
		}
	}

	return usageError{fmt.Sprintf(
		"ERROR: unknown command '%s'\nUSAGE: %s <COMMAND> [ARGS] [OPTIONS]\n       commands: %s",
		strings.Join(c.words[:min(2, len(c.words))], " "), c.words[0], strings.Join(slices.Sorted(maps.Keys(commands)), ", "),
	)}
}

// runSubcommand runs a subcommand. Like Proxmox, it prints an object in the API's response as a table.
func (s *Server) runSubcommand(ctx context.Context, c call, sub subcommand, words []string) error {
	verb, path, callsAPI := strings.Cut(strings.ReplaceAll(sub.apiCall, "{node}", s.host), " ")
	ownOptions := strings.Fields(sub.ownOptions)

	a, err := parseArguments(words, sub.usage, func(name string) (known, boolean bool) {
		if slices.Contains(ownOptions, name) {
			return true, false
		}

		return s.api.Option(verb, path, name)
	})
	if err != nil {
		return err
	}

	values := a.parameters()
	if err := s.mapParameters(c, values); err != nil {
		return err
	}

	if sub.fixed != "" {
		values[sub.fixed] = []string{"1"}
	}

	for name, value := range values {
		if in := "{" + name + "}"; slices.Contains(ownOptions, name) || strings.Contains(path, in) {
			path = strings.ReplaceAll(path, in, value[0])

			delete(values, name)
		}
	}

	if verb == "create" && strings.HasSuffix(path, "/config") && len(values) > 0 {
		c.printf("update VM %s: %s\n", a.positional[0], formatChanges(values))
	}

	var answer any
	if callsAPI {
		if answer, err = s.callAPI(ctx, c, verb, path, values); err != nil {
			return withUsage(err, sub.usage)
		}
	}

	object, isObject := answer.(map[string]any)

	switch {
	case sub.print != nil:
		return sub.print(ctx, c, a, answer)
	case isObject:
		c.printObject(object)
	}

	return nil
}

// callAPI calls Proxmox' API as root and waits for the task that the call starts.
func (s *Server) callAPI(
	ctx context.Context, c call, command, path string, values map[string][]string,
) (answer any, err error) {
	answer, err = s.api.Call(ctx, command, path, values)
	if upid, isText := answer.(string); err == nil && isText && strings.HasPrefix(upid, "UPID:") {
		err = s.waitTask(ctx, c, upid)
	}

	return answer, err
}

// formatChanges formats parameters as `qm set` prints them.
func formatChanges(values map[string][]string) string {
	var options []string

	for _, key := range slices.Sorted(maps.Keys(values)) {
		if key != "digest" && key != "skiplock" {
			options = append(options, "-"+key+" "+strings.Join(values[key], ","))
		}
	}

	return strings.Join(options, " ")
}

// waitTask waits for a task, prints its log and returns its error. It stops the task when the client disconnects.
func (s *Server) waitTask(ctx context.Context, c call, upid string) error {
	stop := context.AfterFunc(ctx, func() { s.dc.StopTask(upid) })
	defer stop()

	// A stopped task is also waited for: it rolls back.
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

// mapParameters translates paths inside the root folder, which pvesm path prints, to host paths, and replaces the name
// of a file of public keys with its content (param_mapping of PVE::CLI::qm).
func (s *Server) mapParameters(c call, values map[string][]string) error {
	if name, ok := values["sshkeys"]; ok {
		keys, err := os.ReadFile(s.localPath(c.Dir, name[0]))
		if err != nil {
			return fmt.Errorf("can't open '%s' - %s", name[0], strerror(err))
		}

		values["sshkeys"] = []string{strings.ReplaceAll(url.QueryEscape(string(keys)), "+", "%20")}
	}

	for key, value := range values {
		if !datacentre.IsDrive(key) {
			continue
		}

		properties := datacentre.ParseProperties(key, value[0])
		for name, part := range properties {
			properties[name] = s.hostPath(part)
		}

		values[key] = []string{properties.Format(key)}
	}

	return nil
}
