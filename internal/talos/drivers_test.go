package talos

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDriverFor(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ talos, generation, flavour, track, want, fails string }{
		"Ada gets the open modules":                {"v1.12.6", "ada", "", "", "open production", ""},
		"Ada may have long-term support":           {"v1.12.6", "ada", "", "lts", "open lts", ""},
		"Ada may have the nonfree modules":         {"v1.13.0", "ada", "nonfree", "", "nonfree production", ""},
		"Pascal has no open modules":               {"v1.12.6", "pascal", "", "", "nonfree production", ""},
		"Pascal is in long-term support from 1.13": {"v1.13.2", "pascal", "", "", "nonfree lts", ""},
		"Blackwell has the open modules":           {"v1.14.4", "blackwell", "", "", "open production", ""},
		"Blackwell has no nonfree modules": {
			"v1.12.6", "blackwell", "nonfree", "", "",
			"version v1.12.6 of Talos has no nonfree driver for GPUs of the generation blackwell: choose open production or open lts, or leave it out for open production",
		},
		"Volta is not in 1.13's production branch": {
			"v1.13.0", "volta", "", "production", "",
			"version v1.13.0 of Talos has no production driver for GPUs of the generation volta: choose nonfree lts, or leave it out for nonfree lts",
		},
		"Turing before its time": {
			"v1.10.0", "turing", "", "", "",
			`version v1.10.0 of Talos has no driver for GPUs of the generation "turing": choose from maxwell, pascal, volta, turing, ampere, ada, hopper, blackwell, and a supported Talos version`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			driver, err := DriverFor(test.talos, test.generation, test.flavour, test.track)
			if test.fails != "" {
				require.EqualError(t, err, test.fails)

				return
			}

			require.NoError(t, err)
			assert.Equal(t, test.want, driver.String())
		})
	}
}

func TestDriversNeverMixTracks(t *testing.T) {
	t.Parallel()

	for _, release := range supportedReleases() {
		for _, generation := range Generations() {
			drivers := Drivers(release.Talos+".0", generation)
			require.NotEmpty(t, drivers, "Talos %s and %s", release.Talos, generation)

			for _, driver := range drivers {
				require.Len(t, driver.Extensions(), 2)

				for _, extension := range driver.Extensions() {
					assert.True(t, strings.HasSuffix(extension, "-"+driver.Track), extension)
				}
			}
		}
	}

	assert.Equal(
		t, []string{"siderolabs/nvidia-open-gpu-kernel-modules-production", "siderolabs/nvidia-container-toolkit-production"},
		Driver{FlavourOpen, TrackProduction}.Extensions(),
	)
	assert.Equal(
		t, []string{"siderolabs/nonfree-kmod-nvidia-lts", "siderolabs/nvidia-container-toolkit-lts"},
		Driver{FlavourNonfree, TrackLTS}.Extensions(),
	)
}

func TestGenerationOf(t *testing.T) {
	t.Parallel()

	named := map[string][]string{
		"maxwell": {"GM107GL [Tesla M10]"}, "pascal": {"GP104 [GeForce GTX 1080]", "GP102GL [Tesla P40]"},
		"volta": {"GV100GL [Tesla V100 PCIe 32GB]"}, "turing": {"TU104GL [Tesla T4]"},
		"ampere": {"GA102GL [A40]", "GA100 [A100 PCIe 40GB]"}, "ada": {"AD104GL [RTX 4000 SFF Ada Generation]"},
		"hopper": {"GH100 [H100 PCIe]"}, "blackwell": {"GB202 [GeForce RTX 5090]"},
		"": {"Device 2bb4", "GK110BGL [Tesla K40m]", "G92 [GeForce 9800 GT]"},
	}
	for generation, names := range named {
		for _, name := range names {
			assert.Equal(t, generation, GenerationOf("3D controller [0302]: NVIDIA Corporation "+name), name)
		}
	}

	for _, generation := range Generations() {
		assert.NotEmpty(t, named[generation], generation)
	}

	assert.Empty(t, GenerationOf("VGA compatible controller: Advanced Micro Devices GA102"))
}
