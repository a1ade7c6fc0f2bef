package datacentre

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// USBDevice is a USB device of a host that is no hub.
type USBDevice struct {
	Port string // bus and ports: 1-4.2
	ID   string // vendor and product in hexadecimal, in lower case: 10c4:ea60
	// Manufacturer and Product are texts of the device, empty if it has none.
	Manufacturer, Product string
}

// usbDevice resolves a usb value to the host's device, as a start and a hotplug do (parse_usb_device of
// PVE::QemuServer::USB, assert_valid of PVE::Mapping::USB).
func (d *Datacentre) usbDevice(h Host, value string) (USBDevice, error) {
	p := ParseProperties("usb0", value)
	port, id := "", p["host"]

	if name := p["mapping"]; name != "" {
		entries := mappingEntries(d.state.Records[USBMappings][name], h.Name)

		switch len(entries) {
		case 0:
			return USBDevice{}, fmt.Errorf("USB device mapping not found for '%s'", name)
		case 1:
		default:
			return USBDevice{}, errors.New("More than one USB mapping per host not supported") //nolint:staticcheck // Proxmox'
		}

		if err := checkUSBEntry(name, h, entries[0]); err != nil {
			return USBDevice{}, fmt.Errorf("USB Mapping invalid (hardware probably changed): %w", err)
		}

		port, id = entries[0]["path"], entries[0]["id"]
	} else if strings.Contains(id, "-") {
		port = id
	}

	// KVM starts without the device of a value that is no mapping, and takes it once it is plugged in.
	found, _ := h.usbDevice(port, id)

	return found, nil
}

// usbDevice returns the device at a port, or without a port the last with the id.
func (o HostOptions) usbDevice(port, id string) (found USBDevice, ok bool) {
	for _, u := range o.USB {
		if u.Port == port || port == "" && u.ID == strings.ToLower(strings.ReplaceAll(id, "0x", "")) {
			found, ok = u, true
		}
	}

	return found, ok
}

// checkUSBEntry compares an entry of a mapping with the host's devices. Proxmox compares ids letter by letter.
func checkUSBEntry(name string, h Host, entry Config) error {
	id, path := entry["id"], entry["path"]

	found, ok := h.usbDevice(path, id)

	switch {
	case path != "" && !ok:
		return fmt.Errorf("usb device '%s' not found", path)
	case !ok || path == "" && found.ID != id:
		return fmt.Errorf("usb device '%s' not found", id)
	case found.ID != id:
		return fmt.Errorf("'id' does not match for '%s' (%s != %s)", name, found.ID, id)
	default:
		return nil
	}
}

// chooseUSB returns the USB devices for a VM's start. Two machines with one device start in Proxmox, too: the second
// takes it from the first.
func (d *Datacentre) chooseUSB(v *vm) ([]USBDevice, error) {
	h := d.hostView(d.host(v.Host))

	var chosen []USBDevice

	for _, key := range v.Config.numbered("usb") {
		if v.Config.Properties(key)["host"] == "spice" {
			continue
		}

		device, err := d.usbDevice(h, v.Config[key])
		if err != nil {
			return nil, err
		}

		if device != (USBDevice{}) && !slices.Contains(chosen, device) {
			chosen = append(chosen, device)
		}
	}

	return chosen, nil
}

// hotplugUSB plugs the changed USB devices into a running VM, and unplugs removed ones.
func (d *Datacentre) hotplugUSB(v *vm, set Config, del []string) error {
	removed := slices.ContainsFunc(del, func(k string) bool { return isIndexed(k, "usb") })
	if v.Hardware == nil || len(set.numbered("usb")) == 0 && !removed {
		return nil
	}

	for _, k := range set.numbered("usb") {
		if _, err := d.usbDevice(d.hostView(d.host(v.Host)), v.Config[k]); err != nil {
			return ParameterError(map[string]string{k: "hotplug problem - " + err.Error() + "\n"})
		}
	}

	var err error

	v.Hardware.USB, err = d.chooseUSB(v)

	return err
}
