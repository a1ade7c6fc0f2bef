package talos

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Flavours of NVIDIA's kernel modules.
const (
	FlavourOpen    = "open"
	FlavourNonfree = "nonfree"
)

// Tracks of NVIDIA's driver.
const (
	TrackLTS        = "lts"
	TrackProduction = "production"
)

// Driver is an NVIDIA driver for which Talos has extensions.
type Driver struct {
	Flavour string // FlavourOpen or FlavourNonfree
	Track   string // TrackLTS or TrackProduction
}

// Extensions returns the driver's system extensions: kernel modules and container toolkit, always of the same track.
func (d Driver) Extensions() []string {
	modules := "nvidia-open-gpu-kernel-modules-"
	if d.Flavour == FlavourNonfree {
		modules = "nonfree-kmod-nvidia-"
	}

	return []string{officialExtensions + modules + d.Track, officialExtensions + "nvidia-container-toolkit-" + d.Track}
}

func (d Driver) String() string { return d.Flavour + " " + d.Track }

// Generations returns the GPU generations, oldest first.
func Generations() []string {
	return []string{"maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"}
}

// chips maps prefixes of NVIDIA's chip names to GPU generations.
var chips = map[string]string{ //nolint:gochecknoglobals // a table
	"GM": "maxwell", "GP": "pascal", "GV": "volta", "TU": "turing", "GA": "ampere", "AD": "ada", "GH": "hopper",
	"GB": "blackwell",
}

var chipName = regexp.MustCompile(`NVIDIA Corporation (GM|GP|GV|TU|GA|AD|GH|GB)\d[0-9A-F]{2}`)

// GenerationOf returns the generation of a GPU by its name in pci.ids, which begins with its chip: NVIDIA Corporation
// AD104GL [RTX 4000 SFF Ada Generation]. It returns an empty string for unknown chips.
func GenerationOf(name string) string {
	if found := chipName.FindStringSubmatch(name); found != nil {
		return chips[found[1]]
	}

	return ""
}

// Drivers returns the drivers for a GPU generation on a Talos version, the best first. The open modules need a GPU
// system processor, which came with Turing, and are the only ones for Blackwell; the oldest generation of the
// production driver depends on the release.
func Drivers(talos, generation string) []Driver {
	release, err := ReleaseOf(talos)
	if err != nil {
		return nil
	}

	var (
		openProduction, openLTS       = Driver{FlavourOpen, TrackProduction}, Driver{FlavourOpen, TrackLTS}
		nonfreeProduction, nonfreeLTS = Driver{FlavourNonfree, TrackProduction}, Driver{FlavourNonfree, TrackLTS}
	)

	switch generation {
	case "maxwell", "pascal", "volta":
		if slices.Index(Generations(), generation) < slices.Index(Generations(), release.NVIDIA.Oldest) {
			return []Driver{nonfreeLTS}
		}

		return []Driver{nonfreeProduction, nonfreeLTS}
	case "turing", "ampere", "ada", "hopper":
		return []Driver{openProduction, openLTS, nonfreeProduction, nonfreeLTS}
	case "blackwell":
		return []Driver{openProduction, openLTS}
	default:
		return nil
	}
}

// DriverFor returns the best driver for a GPU generation on a Talos version with this flavour and track; empty = any.
func DriverFor(talos, generation, flavour, track string) (Driver, error) {
	drivers := Drivers(talos, generation)
	if len(drivers) == 0 {
		return Driver{}, fmt.Errorf(
			"version %s of Talos has no driver for GPUs of the generation %q: choose from %s, and a supported Talos version",
			talos, generation, strings.Join(Generations(), ", "),
		)
	}

	i := slices.IndexFunc(drivers, func(d Driver) bool {
		return (flavour == "" || d.Flavour == flavour) && (track == "" || d.Track == track)
	})
	if i < 0 {
		names := make([]string, 0, len(drivers))
		for _, d := range drivers {
			names = append(names, d.String())
		}

		return Driver{}, fmt.Errorf(
			"version %s of Talos has no %s driver for GPUs of the generation %s: choose %s, or leave it out for %[5]s", talos,
			strings.TrimSpace(flavour+" "+track), generation, strings.Join(names, " or "), drivers[0],
		)
	}

	return drivers[i], nil
}

// GPUExtensions returns the extensions of a Talos version that contain driver and firmware of a GPU of a kind:
// intel-gpu, amd-gpu; none for other devices. The driver is loaded only where there is such a GPU.
func GPUExtensions(talos, kind string) []string {
	wanted := map[string][]string{"intel-gpu": {"i915", "xe"}, "amd-gpu": {"amdgpu"}}[kind]

	return slices.DeleteFunc(Extensions(talos), func(name string) bool {
		return !slices.Contains(wanted, strings.TrimPrefix(name, officialExtensions))
	})
}
