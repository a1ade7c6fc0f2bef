package kernel

import (
	"slices"
	"strings"
)

// serialDrivers are the drivers of USB serial adapters in Talos' image, by their vendors.
var serialDrivers = map[string]string{"10c4": "cp210x", "1a86": "ch341", "0403": "ftdi_sio", "067b": "pl2303"}

// modems are devices that are modems by their class, as many sticks for Z-Wave are; an extension has their driver.
var modems = []string{"0658:0200"}

const (
	cdcACM         = "cdc_acm"
	modemExtension = "usb-modem-drivers"
)

// probeUSB finds the USB devices, which QEMU plugs into the ports of its controller in order, and loads their drivers,
// as udev does at boot: these make /dev/ttyUSB0 and /dev/ttyACM0. Every device is in /dev/bus/usb without a driver.
func (k *Kernel) probeUSB() {
	serial, modem := 0, 0

	for i, u := range k.usb {
		vendor, product, _ := strings.Cut(u.ID, ":")
		k.logf("usb 1-%d: New USB device found, idVendor=%s, idProduct=%s", i+1, vendor, product)

		if driver, known := serialDrivers[vendor]; known {
			k.loadDriver(driver)
			k.logf("usb 1-%d: %s converter now attached to ttyUSB%d", i+1, driver, serial)

			serial++
		}

		if _, installed := k.extension(modemExtension); installed && slices.Contains(modems, u.ID) {
			k.loadDriver(cdcACM)
			k.logf("%s 1-%d:1.0: ttyACM%d: USB ACM device", cdcACM, i+1, modem)

			modem++
		}
	}
}

func (k *Kernel) loadDriver(name string) {
	if !k.Loaded(name) {
		k.modules = append(k.modules, name)
	}
}
