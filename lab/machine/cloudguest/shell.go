package cloudguest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"
	"time"
	_ "time/tzdata" // makes time zones independent of this computer

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// serialPort is the guest's first serial port.
const serialPort = "/dev/ttyS0"

// statusNotFound is a shell's exit status for an unknown command.
const statusNotFound = 127

// zoneExists reports whether a time zone exists.
func zoneExists(name string) bool {
	_, err := time.LoadLocation(name)

	return err == nil && name != "" && name != "Local"
}

// shell interprets a script of the seed with the guest's files and commands only: it reads, writes and starts nothing
// on this computer. Like in any shell, unknown commands exit with status 127.
func (b *build) shell(ctx context.Context, words []string) error {
	if len(words) < 2 || words[0] != "sh" {
		b.fail("Failed to run %q: the lab's guests run scripts: sh FILE", strings.Join(words, " "))

		return nil
	}

	text, found := b.guest.Files[words[1]]
	if !found {
		b.fail("sh: 0: cannot open %s: No such file", words[1])

		return nil
	}

	script, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(text), words[1])
	if err != nil {
		b.fail("%s", err)

		return nil
	}

	runner, err := interp.New(
		interp.Env(expand.ListEnviron("PATH=/usr/sbin:/usr/bin")), interp.Dir("/"), interp.StdIO(nil, io.Discard, io.Discard),
		interp.Params(append([]string{"--"}, words[2:]...)...),
		interp.CallHandler(func(_ context.Context, words []string) ([]string, error) {
			if len(words) == 3 && words[0] == "command" && words[1] == "-v" {
				return []string{"which", words[2]}, nil
			}

			return words, nil
		}),
		interp.OpenHandler(func(_ context.Context, name string, flag int, _ fs.FileMode) (io.ReadWriteCloser, error) {
			return b.open(name, flag)
		}),
		interp.StatHandler(func(_ context.Context, name string, follow bool) (fs.FileInfo, error) {
			return b.stat(name, follow)
		}),
		interp.ReadDirHandler2(func(_ context.Context, name string) ([]fs.DirEntry, error) { return b.readDir(name), nil }),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return b.exec }),
	)
	if err != nil {
		return err
	}

	err = runner.Run(ctx, script)
	if status := interp.ExitStatus(0); errors.As(err, &status) || errors.Is(err, errPoweredOff) {
		err = nil // a failed unit does not stop the system
	}

	if ctx.Err() != nil {
		return ctx.Err()
	}

	return err
}

// open opens a file of the guest or its serial console.
func (b *build) open(name string, flag int) (io.ReadWriteCloser, error) {
	if name == os.DevNull {
		return os.OpenFile(name, os.O_RDWR, 0)
	}

	content, found := b.guest.Files[b.resolveLink(name)]

	switch {
	case name == serialPort:
		return &memoryFile{done: func(text string) {
			for line := range strings.Lines(text) {
				b.w.Print(strings.TrimRight(line, "\r\n"))
			}
		}}, nil
	case !found && flag&os.O_CREATE == 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}

	f := &memoryFile{done: func(text string) {
		if flag&(os.O_WRONLY|os.O_RDWR) != 0 {
			b.guest.Files[b.resolveLink(name)] = text
		}
	}}

	if flag&os.O_TRUNC == 0 {
		_, _ = f.WriteString(content) // a buffer takes everything
	}

	return f, nil
}

// memoryFile is a file in memory that is stored when it is closed.
type memoryFile struct {
	bytes.Buffer

	done func(text string)
}

// Close implements io.Closer.
func (w *memoryFile) Close() error {
	w.done(w.String())

	return nil
}

// resolveLink returns the target of a symbolic link; other names are unchanged.
func (b *build) resolveLink(name string) string {
	if target, linked := b.guest.Links[name]; linked {
		return target
	}

	return name
}

// tree returns the guest's current file system.
func (b *build) tree() fstest.MapFS {
	tree := fstest.MapFS{}

	for name, content := range b.guest.Files {
		tree[fsPath(name)] = &fstest.MapFile{Data: []byte(content)}
	}

	for name, target := range b.guest.Links {
		tree[fsPath(name)] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
	}

	return tree
}

// fsPath converts an absolute path to one of io/fs.
func fsPath(absolute string) string {
	return cmp.Or(strings.TrimPrefix(path.Clean(absolute), "/"), ".")
}

func (b *build) stat(name string, follow bool) (fs.FileInfo, error) {
	if name = path.Clean(name); follow {
		name = b.resolveLink(name)
	}

	tree := b.tree()
	if zone, inside := strings.CutPrefix(name, zoneinfo); inside && zoneExists(zone) {
		tree[fsPath(name)] = &fstest.MapFile{Data: []byte("a time zone")}
	}

	return tree.Lstat(fsPath(name))
}

// readDir lists a folder; one that does not exist is empty.
func (b *build) readDir(name string) []fs.DirEntry {
	entries, _ := b.tree().ReadDir(fsPath(name)) //nolint:errcheck // documented above

	return entries
}

// errPoweredOff ends everything that runs.
var errPoweredOff = errors.New("the system is switched off")

// hasCommand reports whether the guest has a command other than the shell's own.
func (b *build) hasCommand(name string) bool {
	locales := b.os == "arch" || slices.Contains(b.guest.Packages, "locales")

	switch name {
	case "qemu-ga":
		return b.guest.Agent
	case "locale-gen":
		return locales
	case "update-locale":
		return locales && b.os != "arch"
	default:
		return slices.Contains([]string{
			"cloud-init", "find", "fstrim", "journalctl", "readlink", "rm", "sleep", "sync", "systemctl", "tail", "truncate",
		}, name)
	}
}

// exec runs a command of the guest.
func (b *build) exec(ctx context.Context, words []string) error {
	hc := interp.HandlerCtx(ctx)
	name, rest := words[0], words[1:]
	print := func(format string, a ...any) { fmt.Fprintf(hc.Stdout, format, a...) } //nolint:errcheck
	refuse := func() error {
		fmt.Fprintf(hc.Stderr, "%s: the lab's guests do not support %q\n", name, strings.Join(rest, " ")) //nolint:errcheck

		return interp.ExitStatus(2)
	}

	if name == "which" {
		return map[bool]error{false: interp.ExitStatus(1)}[b.hasCommand(rest[0])]
	}

	if !b.hasCommand(name) {
		fmt.Fprintf(hc.Stderr, "sh: %s: not found\n", name) //nolint:errcheck

		return interp.ExitStatus(statusNotFound)
	}

	switch line := strings.Join(words, " "); {
	case line == "cloud-init status --wait" || line == "cloud-init status --long":
		return b.status(print)
	case line == "cloud-init clean --logs --seed":
		b.remove("/var/lib/cloud", "/var/log/cloud-init.log", outputLog)
	case name == "sleep" && len(rest) == 1:
		seconds, err := strconv.ParseFloat(rest[0], 64)
		if err != nil {
			return refuse()
		}

		return b.w.Sleep(ctx, time.Duration(seconds*float64(time.Second)))
	case name == "tail" && len(rest) == 3 && rest[0] == "-n":
		lines := strings.SplitAfter(b.guest.Files[rest[2]], "\n")
		n, _ := strconv.Atoi(rest[1]) //nolint:errcheck // 0 shows nothing
		print("%s", strings.Join(lines[max(0, len(lines)-n-1):], ""))
	case name == "readlink" && len(rest) == 2 && rest[0] == "-f":
		print("%s\n", b.resolveLink(rest[1]))
	case name == "rm" && len(rest) > 0 && (rest[0] == "-f" || rest[0] == "-rf"):
		b.remove(rest[1:]...)
	case name == "find":
		return b.find(rest, refuse)
	case line == "locale-gen":
		return b.localeGen(print)
	case name == "update-locale" && len(rest) == 1:
		b.guest.Files["/etc/default/locale"] = rest[0] + "\n"
	case line == "journalctl --relinquish-var":
		b.volatileJournal = true
	case line == "journalctl --rotate", line == "fstrim -a", line == "sync":
	case line == "systemctl poweroff" || line == "systemctl poweroff --force":
		b.poweroff, b.forced = true, strings.HasSuffix(line, "--force")

		return errPoweredOff
	default:
		return refuse()
	}

	return nil
}

// status prints cloud-init's status; it exits with status 1 if a module failed.
func (b *build) status(print func(format string, a ...any)) error {
	if len(b.errors) == 0 {
		print("status: done\n")

		return nil
	}

	print("status: error\nerrors:\n")

	for _, text := range b.errors {
		print("\t- %s\n", text)
	}

	return interp.ExitStatus(1)
}

// remove removes files, and folders with their content.
func (b *build) remove(names ...string) {
	for _, name := range names {
		for _, files := range []map[string]string{b.guest.Files, b.guest.Links} {
			for file := range files {
				if file == name || strings.HasPrefix(file, name+"/") {
					delete(files, file)
				}
			}
		}
	}
}

// find empties files: find FOLDER -type f ! -path PATTERN -exec truncate -s 0 {} +.
func (b *build) find(words []string, refuse func() error) error {
	if len(words) != 12 || strings.Join(words[1:5], " ") != "-type f ! -path" ||
		strings.Join(words[6:], " ") != "-exec truncate -s 0 {} +" {
		return refuse()
	}

	// In find's patterns, * also matches slashes.
	keep := strings.TrimSuffix(words[5], "*")

	for file := range b.guest.Files {
		if strings.HasPrefix(file, words[0]+"/") && !strings.HasPrefix(file, keep) {
			b.guest.Files[file] = ""
		}
	}

	return nil
}

// localeGen generates the locales listed in /etc/locale.gen.
func (b *build) localeGen(print func(format string, a ...any)) error {
	for line := range strings.Lines(b.guest.Files["/etc/locale.gen"]) {
		locale, encoding, ok := strings.Cut(strings.TrimSpace(line), " ")
		language, _, _ := strings.Cut(locale, ".")

		if !ok || encoding == "" || len(language) < len("xx_YY") {
			print("[error] cannot open locale definition file `%s': No such file or directory\n", language)

			return interp.ExitStatus(1)
		}

		b.guest.Files["/usr/lib/locale/"+locale] = encoding
	}

	return nil
}
