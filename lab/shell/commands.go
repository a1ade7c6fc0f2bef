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
	"mvdan.cc/sh/v3/syntax"

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
		"qm":         s.qm,
		"pct":        s.nothing,
		"pvesm":      s.pvesm,
		"pvesh":      s.pvesh,
		"pvecm":      s.pvecm,
		"ha-manager": s.haManager,
		"pveversion": s.pveVersion,
		"flock":      s.flock, "sudo": s.prefix, "nohup": s.prefix, "bash": s.bash, "sh": s.bash,
		"genisoimage":       s.genisoimage,
		"socat":             s.socat,
		"timeout":           s.timeout,
		"hostname":          s.hostname,
		"nproc":             s.nproc,
		"uname":             s.uname,
		"lspci":             s.lspci,
		"lsblk":             s.lsblk,
		"df":                s.df,
		"dmesg":             s.dmesg,
		"lsmod":             s.lsmod,
		"modprobe":          s.modprobe,
		"systemctl":         s.systemctl,
		"reboot":            s.reboot,
		"shutdown":          s.shutdown,
		"zpool":             s.zpool,
		"zfs":               s.zfs,
		"update-initramfs":  s.updateInitramfs,
		"update-grub":       s.updateGRUB,
		"proxmox-boot-tool": s.bootTool,
		"efibootmgr":        s.efibootmgr,
		"mokutil":           s.mokutil,
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

			s.settle()

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

	text := err.Error()

	if errors.As(err, &refuse) && len(refuse.Fields) > 0 {
		lines := []string{fmt.Sprintf("%d %s", refuse.Status, refuse.Message)}
		for name, complaint := range refuse.Fields {
			lines = append(lines, name+": "+complaint)
		}

		slices.Sort(lines[1:])
		text = strings.Join(lines, "\n")
	}

	fmt.Fprintln(errOut, strings.TrimSuffix(text, "\n")) //nolint:errcheck

	// Perl dies with the system's error number where there is one: "no such file" is 2.
	if errors.As(err, &refuse) && strings.HasPrefix(refuse.Message, "Configuration file") {
		return interp.ExitStatus(statusUsage)
	}

	return interp.ExitStatus(statusOfPVE)
}

// prefix runs what stands behind a command that changes nothing here: sudo, nohup.
func (s *Server) prefix(ctx context.Context, c call) error {
	words := c.words[1:]
	for len(words) > 0 && (words[0] == "-n" || words[0] == "-E" || words[0] == "--") {
		words = words[1:]
	}

	if len(words) == 0 {
		fmt.Fprintf(c.Stderr, "usage: %s command\n", c.words[0]) //nolint:errcheck

		return interp.ExitStatus(statusFailed)
	}

	return c.again(ctx, words)
}

// bash runs a script as the login shell does, so that Proxmox' commands are there too.
func (s *Server) bash(ctx context.Context, c call) error {
	var (
		options []string
		words   = c.words[1:]
		text    *string
	)

	for len(words) > 0 && len(words[0]) > 1 && strings.ContainsAny(words[0][:1], "-+") && words[0] != "--" {
		flag := words[0]
		words = words[1:]

		if strings.HasPrefix(flag, "--") {
			continue // --norc and the like
		}

		// What is left of "-euxc" is for the interpreter; login, interactive and standard input are how things are.
		rest := strings.NewReplacer("c", "", "s", "", "l", "", "i", "").Replace(flag)
		if len(rest) > 1 {
			options = append(options, rest)
		}

		if strings.HasSuffix(rest, "o") && len(words) > 0 {
			options, words = append(options, words[0]), words[1:]
		}

		if strings.Contains(flag, "c") && len(words) > 0 {
			text, words = &words[0], words[1:]

			break
		}
	}

	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}

	return s.script(ctx, c, options, words, text)
}

// script runs a text, else the file that the words begin with, else standard input.
func (s *Server) script(ctx context.Context, c call, options, words []string, text *string) error {
	name, stdin := "bash", c.Stdin
	parser := syntax.NewParser(syntax.Variant(syntax.LangBash))

	switch {
	case text != nil:
		if len(words) > 0 {
			name, words = words[0], words[1:]
		}
	case len(words) > 0:
		name, words = words[0], words[1:]

		file, err := s.open(ctx, name, 0, 0)
		if err != nil {
			fmt.Fprintf(c.Stderr, "bash: %s: No such file or directory\n", name) //nolint:errcheck

			return interp.ExitStatus(statusNotFound)
		}

		content, err := io.ReadAll(file)
		_ = file.Close()

		if err != nil {
			return err
		}

		whole := string(content)
		text = &whole
	default:
		stdin = nil
	}

	runner, err := s.runner(
		exported(c.Env), c.Dir, stdin, c.Stdout, c.Stderr, interp.Params(append(append(options, "--"), words...)...),
	)
	if err != nil {
		fmt.Fprintf(c.Stderr, "bash: %s\n", err) //nolint:errcheck

		return interp.ExitStatus(statusUsage)
	}

	if text == nil {
		err = runStream(ctx, runner, parser, c.Stdin)
	} else {
		err = runText(ctx, runner, parser, *text, name)
	}

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
