package proxmoxve

// downloadFile is the table of Download.File's properties.
func downloadFile() attributes {
	return attributes{
		"checksum":               {effect: replace},
		"checksumAlgorithm":      {effect: replace, validate: oneOf("md5", "sha1", "sha224", "sha256", "sha384", "sha512")},
		"contentType":            {required: true, effect: replace, validate: oneOf("iso", "vztmpl")},
		"datastoreId":            {required: true, effect: replace},
		"decompressionAlgorithm": {effect: inPlace, validate: oneOf("gz", "lzo", "zst", "bz2")},
		"fileName":               {computed: true, effect: replace},
		"nodeName":               {required: true, effect: replace},
		"overwrite":              {kind: boolean, fallback: true, effect: inPlace},
		"overwriteUnmanaged":     {kind: boolean, fallback: false, effect: inPlace},
		"size":                   {kind: integer, output: true, effect: replace},
		"uploadTimeout":          {kind: integer, fallback: 600.0, effect: inPlace},
		"url":                    {required: true, effect: replace, validate: webAddress},
		"verify":                 {kind: boolean, fallback: true, effect: inPlace},
	}
}
