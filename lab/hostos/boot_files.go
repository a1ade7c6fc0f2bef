package hostos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"

	"talos-proxmox/lab/datacentre"
)

// The boot loader's partition is not mounted on a running host: in the lab it is a folder that no script knows.
const esp = "var/lib/lab/esp/" + espID

func initrd(kernel string) string { return "boot/initrd.img-" + kernel }

func entry(kernel string) string { return esp + "/loader/entries/proxmox-" + kernel + ".conf" }

// initramfs is the content of an initrd.img in the lab: the configuration at the time of its creation.
type initramfs struct {
	Modprobe string   `json:"modprobe"`
	Modules  []string `json:"modules"`
}

// kernels returns the installed releases, oldest first.
func (d disk) kernels() []string {
	list, _ := filepath.Glob(d.path("boot/vmlinuz-*"))
	for i, name := range list {
		list[i] = strings.TrimPrefix(filepath.Base(name), "vmlinuz-")
	}

	slices.SortFunc(list, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })

	return list
}

// updateInitramfs creates a kernel's image from the current files.
func (d disk) updateInitramfs(kernel string) error {
	modprobe, err := d.readConfs("etc/modprobe.d")
	if err != nil {
		return err
	}

	image, err := json.Marshal(initramfs{Modprobe: modprobe, Modules: configLines(d.text("etc/initramfs-tools/modules"))})
	if err != nil {
		return err
	}

	return d.write(initrd(kernel), string(image)+"\n")
}

// readConfs returns all *.conf files of a folder, in order.
func (d disk) readConfs(folder string) (string, error) {
	names, err := filepath.Glob(d.path(folder + "/*.conf"))
	if err != nil {
		return "", err
	}

	var text strings.Builder

	for _, name := range names {
		b, err := os.ReadFile(name) //nolint:gosec // a file of the lab's host
		if err != nil {
			return "", err
		}

		text.WriteString(strings.TrimSuffix(string(b), "\n") + "\n")
	}

	return text.String(), nil
}

// updateGRUB writes GRUB's configuration from /etc/default/grub: the disk's own or, if proxmox-boot-tool manages the
// boot loader, the one on its partition.
func (d disk) updateGRUB(h datacentre.Host) error {
	parameters, err := d.grubCommandLine()
	if err != nil {
		return err
	}

	kernels := d.kernels()
	if len(kernels) == 0 {
		return errors.New("no kernel in /boot")
	}

	kernel := kernels[len(kernels)-1]
	image, root := "/boot/vmlinuz-"+kernel, "root=/dev/mapper/pve-root"

	if h.ZFSRoot() != "" {
		image, root = "/vmlinuz-"+kernel, "root=ZFS=/ROOT/pve-1"
	}

	name := "boot/grub/grub.cfg"
	if h.BootTool {
		name = esp + "/grub/grub.cfg"
	}

	return d.write(
		name,
		fmt.Sprintf(
			"menuentry 'Proxmox VE GNU/Linux' {\n\tlinux\t%s %s ro %s\n\tinitrd\t/boot/initrd.img-%s\n}\n", image, root, parameters,
			kernel,
		),
	)
}

// grubCommandLine returns GRUB's kernel parameters. Its files are shell scripts, which are executed.
func (d disk) grubCommandLine() (string, error) {
	more, err := filepath.Glob(d.path("etc/default/grub.d/*.cfg"))
	if err != nil {
		return "", err
	}

	runner, err := interp.New(interp.Env(expand.ListEnviron()), interp.StdIO(nil, io.Discard, io.Discard),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc {
			return func(context.Context, []string) error { return interp.ExitStatus(127) }
		}))
	if err != nil {
		return "", err
	}

	for _, name := range append([]string{d.path("etc/default/grub")}, more...) {
		text, err := os.ReadFile(name) //nolint:gosec // a file of the lab's host
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			return "", err
		}

		file, err := syntax.NewParser().Parse(strings.NewReader(string(text)), strings.TrimPrefix(name, string(d)))
		if err != nil {
			return "", fmt.Errorf("syntax error: %w", err)
		}

		if err := runner.Run(context.Background(), file); err != nil && !errors.As(err, new(interp.ExitStatus)) {
			return "", err
		}
	}

	return strings.Join(
		strings.Fields(runner.Vars["GRUB_CMDLINE_LINUX"].Str+" "+runner.Vars["GRUB_CMDLINE_LINUX_DEFAULT"].Str), " ",
	), nil
}

// refreshESP does what proxmox-boot-tool refresh does: it copies kernels, images and configuration to the boot loader's
// partition.
func (d disk) refreshESP(h datacentre.Host) error {
	for _, kernel := range d.kernels() {
		image, err := d.read(initrd(kernel))
		if err != nil {
			return err
		}

		if err := d.write(esp+"/"+initrd(kernel), image); err != nil {
			return err
		}

		if h.Loader != datacentre.LoaderSystemdBoot {
			continue
		}

		line, _, _ := strings.Cut(d.text("etc/kernel/cmdline"), "\n")
		if !d.exists("etc/kernel/cmdline") {
			line = d.text("proc/cmdline")
		}

		if err := d.write(
			entry(kernel), fmt.Sprintf("title    Proxmox Virtual Environment\nversion  %s\noptions  %s\n", kernel, line),
		); err != nil {
			return err
		}
	}

	if h.Loader != datacentre.LoaderSystemdBoot {
		return d.updateGRUB(h)
	}

	return nil
}

// Boot returns what a host runs after a boot from its disk.
func (System) Boot(h datacentre.Host) (datacentre.Boot, error) {
	f, err := disk(h.Root).bootFiles(h)

	return f.boot(h.HostOptions), err
}

// bootFiles reads what a boot would use: the newest kernel, its command line and its image, both as the active boot
// loader has them.
func (d disk) bootFiles(h datacentre.Host) (bootFiles, error) {
	kernels := d.kernels()
	if len(kernels) == 0 {
		return bootFiles{}, errors.New("no kernel in /boot")
	}

	f := bootFiles{kernel: kernels[len(kernels)-1]}
	folder := ""

	if h.BootTool {
		folder = esp + "/"
	}

	line, err := d.commandLine(h, f.kernel)
	if err != nil {
		return f, err
	}

	f.commandLine = line

	text, err := d.read(folder + initrd(f.kernel))
	if err != nil {
		return f, fmt.Errorf("no initramfs for %s: %w", f.kernel, err)
	}

	var image initramfs
	if err := json.Unmarshal([]byte(text), &image); err != nil {
		return f, fmt.Errorf("the initramfs of %s is damaged: %w", f.kernel, err)
	}

	f.modprobe, f.early = image.Modprobe, image.Modules

	late, err := d.readConfs("etc/modules-load.d")
	f.late = append(configLines(d.text("etc/modules")), configLines(late)...)

	return f, err
}

func (d disk) commandLine(h datacentre.Host, kernel string) (string, error) {
	if h.Loader == datacentre.LoaderSystemdBoot {
		text, err := d.read(entry(kernel))
		if err != nil {
			return "", fmt.Errorf("systemd-boot has no entry: %w", err)
		}

		_, line, _ := strings.Cut(text, "\noptions  ")
		line, _, _ = strings.Cut(line, "\n")

		return fmt.Sprintf(`initrd=\EFI\proxmox\%[1]s\initrd.img-%[1]s %[2]s`, kernel, line), nil
	}

	name := "boot/grub/grub.cfg"
	if h.BootTool {
		name = esp + "/grub/grub.cfg"
	}

	_, line, found := strings.Cut(d.text(name), "\tlinux\t")
	if line, _, _ = strings.Cut(line, "\n"); !found {
		return "", errors.New("GRUB has no configuration")
	}

	return "BOOT_IMAGE=" + line, nil
}
