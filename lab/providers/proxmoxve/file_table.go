package proxmoxve

// downloadFile is the table of Download.File's properties.
func downloadFile() attributes {
	return attributes{
		"checksum":               {effect: Replace},
		"checksumAlgorithm":      {effect: Replace, validate: oneOf("md5", "sha1", "sha224", "sha256", "sha384", "sha512")},
		"contentType":            {required: true, effect: Replace, validate: oneOf("iso", "vztmpl")},
		"datastoreId":            {required: true, effect: Replace},
		"decompressionAlgorithm": {effect: InPlace, validate: oneOf("gz", "lzo", "zst", "bz2")},
		"fileName":               {computed: true, effect: Replace},
		"nodeName":               {required: true, effect: Replace},
		"overwrite":              {kind: boolean, fallback: true, effect: InPlace},
		"overwriteUnmanaged":     {kind: boolean, fallback: false, effect: InPlace},
		"size":                   {kind: integer, output: true, effect: Replace},
		"uploadTimeout":          {kind: integer, fallback: 600.0, effect: InPlace},
		"url":                    {required: true, effect: Replace, validate: webAddress},
		"verify":                 {kind: boolean, fallback: true, effect: InPlace},
	}
}
