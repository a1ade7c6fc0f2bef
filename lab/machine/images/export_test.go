package images

import "path/filepath"

// Known returns the image of a binary without a look at it.
func Known(path string) Image {
	return Image{Name: filepath.Base(path), Path: path, program: programs[filepath.Base(path)]}
}
