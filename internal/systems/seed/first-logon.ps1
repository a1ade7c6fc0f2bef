# Runs at the first logon of the installation that becomes a template: installs virtio's drivers with the guest agent, and
# cloudbase-init, then has sysprep take away what belongs to one machine only and switch it off. The serial port says how it ended.
$ErrorActionPreference = 'Stop'

function Say([string]$text) {
  $port = New-Object System.IO.Ports.SerialPort 'COM1', 115200
  $port.Open()
  $port.Write("template: $text`r`n")
  $port.Close()
}

function Install([string]$file, [string[]]$arguments) {
  $process = Start-Process -FilePath $file -ArgumentList $arguments -Wait -PassThru
  if ($process.ExitCode -notin 0, 3010) { throw "$file ended with $($process.ExitCode)" }
}

try {
  $answers = '{0}:' -f (Get-Volume -FileSystemLabel ANSWERS).DriveLetter
  $virtio = Get-Volume | Where-Object { $_.DriveType -eq 'CD-ROM' -and $_.DriveLetter } |
    ForEach-Object { '{0}:' -f $_.DriveLetter } | Where-Object { Test-Path "$_\virtio-win-guest-tools.exe" } | Select-Object -First 1
  if (-not $virtio) { throw 'the medium with the virtio drivers has no virtio-win-guest-tools.exe' }

  Install "$virtio\virtio-win-guest-tools.exe" @('/install', '/quiet', '/norestart')
  if (-not (Get-Service -Name QEMU-GA -ErrorAction SilentlyContinue)) { throw 'the guest agent is not installed' }

  Install 'msiexec.exe' @('/i', "$answers\CloudbaseInit.msi", '/qn', '/norestart', 'RUN_SERVICE_AS_LOCAL_SYSTEM=1')
  $cloudbase = "$env:ProgramFiles\Cloudbase Solutions\Cloudbase-Init"
  Copy-Item "$answers\cloudbase-init.conf", "$answers\cloudbase-init-unattend.conf" "$cloudbase\conf" -Force
  Set-Service -Name cloudbase-init -StartupType Automatic

  # sysprep refuses to go on where an app is installed for one user only.
  Get-AppxPackage -Name Microsoft.OneDriveSync | Remove-AppxPackage -ErrorAction SilentlyContinue

  Say 'ready'
  Install "$env:SystemRoot\System32\Sysprep\sysprep.exe" @('/generalize', '/oobe', '/shutdown', "/unattend:`"$cloudbase\conf\Unattend.xml`"")
} catch {
  while ($true) {
    Say "failed: $($_.Exception.Message)"
    Start-Sleep -Seconds 5
  }
}
