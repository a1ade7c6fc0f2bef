package shell

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
)

const apiUser = "root@pam"

// subcommand is one of qm's: its usage, its options beside those of a VM's configuration, and what it does.
type subcommand struct {
	usage         string
	options       string
	configuration bool
	do            func(ctx context.Context, c call, a arguments) error
}

func (s *Server) qmCommands() map[string]subcommand {
	move := subcommand{"qm disk move <vmid> <disk> <storage> [OPTIONS]", " delete format digest bwlimit ", false, s.qmMove}
	resize := subcommand{"qm disk resize <vmid> <disk> <size> [OPTIONS]", " digest skiplock ", false, s.qmResize}
	imports := subcommand{"qm disk import <vmid> <source> <storage> [OPTIONS]", " format target-disk ", false, s.qmImport}

	return map[string]subcommand{
		"create": {"qm create <vmid> [OPTIONS]", " pool start storage unique force bwlimit ", true, s.qmCreate},
		"set":    {"qm set <vmid> [OPTIONS]", " delete digest force skiplock revert ", true, s.qmSet},
		"config": {"qm config <vmid> [OPTIONS]", " current snapshot ", false, s.qmConfig},
		"status": {"qm status <vmid> [OPTIONS]", " verbose ", false, s.qmStatus},
		"list":   {"qm list [OPTIONS]", " full ", false, s.qmList},
		"clone": {
			"qm clone <vmid> <newid> [OPTIONS]", " name description full storage format pool target snapname bwlimit ", false,
			s.qmClone,
		},
		"template": {"qm template <vmid> [OPTIONS]", " disk ", false, s.qmTemplate},
		"destroy":  {"qm destroy <vmid> [OPTIONS]", " purge destroy-unreferenced-disks skiplock ", false, s.qmDestroy},
		"unlock":   {"qm unlock <vmid>", "", false, s.qmUnlock},
		"wait":     {"qm wait <vmid> [OPTIONS]", " timeout ", false, s.qmWait},
		"start":    {"qm start <vmid> [OPTIONS]", " skiplock timeout ", false, s.power(s.dc.Start)},
		"stop": {
			"qm stop <vmid> [OPTIONS]", " skiplock timeout keepActive overrule-shutdown ", false, s.power(s.dc.Stop),
		},
		"reset": {"qm reset <vmid> [OPTIONS]", " skiplock ", false, s.power(s.dc.Reset)},
		"shutdown": {
			"qm shutdown <vmid> [OPTIONS]", " skiplock timeout forceStop keepActive ", false, s.qmShutdown(s.dc.Shutdown),
		},
		"reboot":      {"qm reboot <vmid> [OPTIONS]", " timeout ", false, s.qmShutdown(s.dc.Reboot)},
		"disk move":   move,
		"move-disk":   move,
		"move_disk":   move,
		"disk resize": resize,
		"resize":      resize,
		"disk import": imports,
		"importdisk":  imports,
		"import-disk": imports,
	}
}

// qm is Proxmox' command for virtual machines.
func (s *Server) qm(ctx context.Context, c call) error {
	if err := s.dc.Rescan(s.host); err != nil {
		return err
	}

	words := c.words[1:]
	name := ""

	if len(words) > 0 {
		name, words = words[0], words[1:]
	}

	if name == "disk" && len(words) > 0 {
		name, words = name+" "+words[0], words[1:]
	}

	commands := s.qmCommands()

	sub, known := commands[name]
	if !known {
		return usageError{
			fmt.Sprintf("ERROR: unknown command 'qm %s'\nUSAGE: qm <COMMAND> [ARGS] [OPTIONS]\n       commands: %s",
				name, strings.Join(slices.Sorted(maps.Keys(commands)), ", ")),
		}
	}

	a, err := parseArguments(words, sub.usage, sub.options, sub.configuration)
	if err != nil {
		return err
	}

	return sub.do(ctx, c, a)
}

// task waits for a worker, shows what it logs and fails as it does. When the client goes away, the worker is stopped.
func (s *Server) task(ctx context.Context, c call, upid string, err error) error {
	if err != nil {
		return err
	}

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
func (s *Server) hostFiles(c call, config datacentre.Config) (datacentre.Config, error) {
	if name, stated := config["sshkeys"]; stated {
		keys, err := os.ReadFile(s.inside(c.Dir, name))
		if err != nil {
			return nil, fmt.Errorf("can't open '%s' - %s", name, reason(err))
		}

		config["sshkeys"] = strings.ReplaceAll(url.QueryEscape(string(keys)), "+", "%20")
	}

	for key, value := range config {
		if !datacentre.IsDrive(key) {
			continue
		}

		properties := datacentre.ParseProperties(value, "file")
		for i, p := range properties {
			properties[i].Value = s.outside(p.Value)
		}

		config[key] = properties.Format("file")
	}

	return config, nil
}

func (s *Server) qmCreate(ctx context.Context, c call, a arguments) error {
	vmid, err := a.vmid(0, "vmid")
	if err != nil {
		return err
	}

	config, err := s.hostFiles(c, a.configuration())
	if err != nil {
		return err
	}

	for _, name := range []string{"pool", "start", "storage"} {
		if value, stated := a.options[name]; stated {
			config[name] = value
		}
	}

	upid, err := s.dc.CreateVM(apiUser, s.host, vmid, config)

	return s.task(ctx, c, upid, err)
}

func (s *Server) qmSet(ctx context.Context, c call, a arguments) error {
	vmid, err := a.vmid(0, "vmid")
	if err != nil {
		return err
	}

	var remove []string
	if list := a.options["delete"]; list != "" {
		remove = strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ';' || r == ' ' })
	}

	config, err := s.hostFiles(c, a.configuration())
	if err != nil {
		return err
	}

	if len(config) == 0 && len(remove) == 0 {
		return usageError{"no options specified\n" + a.usage}
	}

	said := make([]string, 0, len(config))
	for _, key := range slices.Sorted(maps.Keys(config)) {
		said = append(said, "-"+key+" "+config[key])
	}

	if len(remove) > 0 {
		said = append(said, "-delete "+strings.Join(remove, ","))
	}

	for _, name := range []string{"digest", "skiplock"} {
		if value, stated := a.options[name]; stated {
			config[name] = value
		}
	}

	c.printf("update VM %d: %s\n", vmid, strings.Join(said, " "))

	upid, err := s.dc.SetConfigTask(apiUser, s.host, vmid, config, remove)

	return s.task(ctx, c, upid, err)
}

func (s *Server) qmImport(ctx context.Context, c call, a arguments) error {
	vmid, err := a.vmid(0, "vmid")
	if err != nil {
		return err
	}

	source := a.fixed[1]
	if _, isVolume := s.dc.Volume(s.host, source); !isVolume {
		if !filepath.IsAbs(source) {
			source = filepath.Join(c.Dir, source)
		}

		source = s.outside(source)
	}

	c.printf("importing disk '%s' to VM %d ...\n", source, vmid)

	upid, err := s.dc.ImportDisk(apiUser, s.host, vmid, source, a.fixed[2])

	return s.task(ctx, c, upid, err)
}
