package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"

	"talos-proxmox/lab/datacentre"
)

// command is one that the lab answers itself. Its error is printed and decides the exit status.
type command func(ctx context.Context, c call) error

// call is a command line and its surroundings.
type call struct {
	interp.HandlerContext

	words []string
	// again runs another command line in the same surroundings.
	again func(ctx context.Context, words []string) error
}

func (c call) printf(format string, a ...any) { fmt.Fprintf(c.Stdout, format, a...) } //nolint:errcheck

func (s *Server) commands() map[string]command {
	return map[string]command{
		"qm":                s.qm,
		"pct":               s.form("list", s.noContainers),
		"pvesm":             s.pvesm,
		"pvesh":             s.pvesh,
		"pveum":             s.pveum,
		"pvecm":             s.form("status", s.pvecm),
		"ha-manager":        s.form("status", s.haManager),
		"pveversion":        s.form("", s.pveVersion),
		"flock":             s.flock,
		"bash":              s.bash,
		"genisoimage":       s.genisoimage,
		"socat":             s.socat,
		"timeout":           s.timeout,
		"hostname":          s.form("", s.hostname),
		"uname":             s.form("-r", s.uname),
		"lspci":             s.form("-Dnnk", s.lspci),
		"systemctl":         s.form("reboot", s.reboot),
		"zpool":             s.zpool,
		"zfs":               s.zfs,
		"update-initramfs":  s.updateInitramfs,
		"update-grub":       s.updateGRUB,
		"proxmox-boot-tool": s.bootTool,
		"efibootmgr":        s.form("-v", s.efibootmgr),
	}
}

// exec answers Proxmox' commands from the model and leaves all others to this machine's programs.
func (s *Server) exec(next interp.ExecHandlerFunc) interp.ExecHandlerFunc {
	var run interp.ExecHandlerFunc

	run = func(ctx context.Context, words []string) error {
		name := words[0]
		for _, folder := range []string{"/usr/sbin/", "/usr/bin/", "/bin/", "/sbin/"} {
			if rest, found := strings.CutPrefix(s.outside(name), folder); found {
				name = rest
			}
		}

		if handled, err := s.clusterLock(interp.HandlerCtx(ctx), name, words); handled {
			return err
		}

		answer, known := s.commands()[name]
		if !known {
			if err := s.commandFault(interp.HandlerCtx(ctx), words); err != nil {
				return err
			}

			err := next(ctx, words)

			s.applyKernelParameters()

			return err
		}

		hc := interp.HandlerCtx(ctx)

		return finish(answer(ctx, call{HandlerContext: hc, words: words, again: run}), hc.Stderr)
	}

	return run
}

// statusOfPVE is what Proxmox' commands end with when they die.
const statusOfPVE = 255

// usageError is a command line that Proxmox' parser refuses.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// withUsage adds the usage to complaints about parameters, as Proxmox' commands do.
func withUsage(err error, usage string) error {
	var refuse *datacentre.Error
	if !errors.As(err, &refuse) || len(refuse.Fields) == 0 {
		return err
	}

	lines := []string{fmt.Sprintf("%d %s", refuse.Status, refuse.Message)}
	for name, complaint := range refuse.Fields {
		lines = append(lines, name+": "+complaint)
	}

	slices.Sort(lines[1:])

	return usageError{strings.Join(append(lines, usage), "\n")}
}

// finish prints an error in Proxmox' words and returns it as the interpreter wants it.
func finish(err error, errOut io.Writer) error {
	if err == nil {
		return nil
	}

	var (
		exit   interp.ExitStatus
		refuse *datacentre.Error
	)

	if errors.As(err, &exit) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}

	fmt.Fprintln(errOut, strings.TrimSuffix(err.Error(), "\n")) //nolint:errcheck

	// Perl dies with the system's error number where there is one: "no such file" is 2.
	if errors.As(err, &refuse) && strings.HasPrefix(refuse.Message, "Configuration file") {
		return interp.ExitStatus(statusUsage)
	}

	return interp.ExitStatus(statusOfPVE)
}

// bash is bash -c: it runs a text as the login shell does, so that Proxmox' commands are there too.
func (s *Server) bash(ctx context.Context, c call) error {
	if len(c.words) < 3 || c.words[1] != "-c" {
		return usageError{"usage: the lab's bash has -c command_string [name [argument…]]"}
	}

	name, words := "bash", c.words[3:]
	if len(words) > 0 {
		name, words = words[0], words[1:]
	}

	runner, err := s.runner(
		exported(c.Env), c.Dir, c.Stdin, c.Stdout, c.Stderr, interp.Params(append([]string{"--"}, words...)...),
	)
	if err != nil {
		return err
	}

	err = runText(ctx, runner, c.words[2], name)

	if ctx.Err() != nil {
		return ctx.Err()
	}

	if status := statusOf(ctx, err, c.Stderr); status != 0 {
		return interp.ExitStatus(status)
	}

	return nil
}

// exported are the variables that programs see.
func exported(env expand.Environ) []string {
	var list []string

	for name, variable := range env.Each {
		if variable.Exported && variable.Kind == expand.String {
			list = append(list, name+"="+variable.Str)
		}
	}

	return list
}
