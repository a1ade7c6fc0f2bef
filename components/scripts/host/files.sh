#!/usr/bin/env bash
# shellcheck disable=SC2034,SC2154 # the parts are sent to the host as one script
#
# Managed files. Our part of a file is a block between two marks, or words of a kernel command line. Of every managed file the state folder keeps its original
# (the file as it would be without our part), what was last written, and the words that were added; so that removal is exact and hand edits survive.

begin='# talos-proxmox begin: managed, edits between these lines are undone'
end='# talos-proxmox end'
was='# was: '

# load PATH: sets content, and present to 1 or nothing.
load() {
  content='' present=''
  if [ -L "$1" ]; then
    problem "${1#"$root"} is a symbolic link, which would be replaced by a file: put a file there, or prepare the host without it"
    return 1
  fi
  [ -e "$1" ] || return 0
  if ! [ -f "$1" ] || ! content=$(cat -- "$1" && printf x); then
    problem "${1#"$root"} cannot be read as a file"
    return 1
  fi
  content=${content%x} present=1
}

# whole FILE: sets REPLY to all of a file of the state.
whole() {
  REPLY=$(cat -- "$1" && printf x) || fail "unable to read ${1#"$root"}"
  REPLY=${REPLY%x}
}

# unblocked PATH CONTENT: the content without our block; what the block replaced stands there again.
unblocked() {
  case $2 in
    *"$begin"*) ;;
    *)
      REPLY=$2
      return 0
      ;;
  esac
  if ! REPLY=$(printf '%s' "$2" | awk -v begin="$begin" -v end="$end" -v was="$was" '
    { bare = $0; sub(/\r$/, "", bare) }
    bare == begin { inside = 1; next }
    inside && bare == end { inside = 0; next }
    inside { if (index($0, was) == 1) print substr($0, length(was) + 1); next }
    { print }
    END { exit inside }' && printf x); then
    problem "${1#"$root"}: the line \"$begin\" has no \"$end\" after it: remove it and what belongs to it"
    return 1
  fi
  REPLY=${REPLY%x}
}

# block CONTENT LINES: the content with the lines as our block, where it stands already, else at the end.
block() {
  case $1 in
    *"$begin"*)
      REPLY=$(printf '%s' "$1" | awk -v begin="$begin" -v end="$end" -v lines="$2" '
        { bare = $0; sub(/\r$/, "", bare) }
        bare == begin { inside = 1; if (!done++) print begin "\n" lines "\n" end; next }
        inside && bare == end { inside = 0; next }
        !inside { print }' && printf x)
      REPLY=${REPLY%x}
      return 0
      ;;
  esac
  REPLY=$1
  case $1 in '' | *$'\n') ;; *) REPLY+=$'\n' ;; esac
  REPLY+=$begin$'\n'$2$'\n'$end$'\n'
}

# holds CONTENT LINE: whether a line with these words is there. Module names are the same with dashes and underscores.
holds() {
  printf '%s\n' "$1" | awk -v want="$2" '
    function bare(s) { gsub(/[ \t]+/, " ", s); gsub(/-/, "_", s); sub(/^ /, "", s); sub(/ $/, "", s); return s }
    bare($0) == bare(want) { found = 1 }
    END { exit !found }'
}

# memory PATH: the folder in which the state keeps what it knows of a file.
memory() {
  REPLY=${1#"$root"/}
  REPLY=$state/files/${REPLY//\//%}
}

staged=()

# stage PATH CONTENT [LIKE]: the content as a new file beside PATH, with mode and owner of LIKE, on disk before anything is renamed.
stage() {
  local new=${1%/*}/.${1##*/}.talos-proxmox
  staged+=("$new")
  if [ -n "${3:-}" ]; then
    cp -p -- "$3" "$new" || fail "unable to write ${new#"$root"}: is the file system read-only or full? Nothing of ${1#"$root"} was changed"
  fi
  { printf '%s' "$2" >"$new" && { [ -n "${3:-}" ] || chmod 644 -- "$new"; } && sync -- "$new"; } || fail "unable to write ${new#"$root"}: is the file system read-only or full? Nothing of ${1#"$root"} was changed"
}

# commit PATH: the staged file takes the place of the old one, whole.
commit() {
  mv -f -- "${1%/*}/.${1##*/}.talos-proxmox" "$1" || fail "unable to replace ${1#"$root"}; it is as it was"
  sync -- "${1%/*}" || true
}

# put PATH CONTENT [LIKE]: both at once.
put() {
  stage "$@"
  commit "$1"
}

# clean_up: what a killed run has staged.
clean_up() {
  local left
  for left in "$root"/etc/{default,kernel,modprobe.d,modules-load.d,apt,apt/sources.list.d}/.*.talos-proxmox; do
    if [ -f "$left" ]; then rm -f -- "$left" || fail "unable to remove ${left#"$root"}: is the file system read-only?"; fi
  done
}

unstage() {
  if [ ${#staged[@]} -gt 0 ]; then
    rm -f -- "${staged[@]}" 2>/dev/null || true
  fi
}

# folder PATH: makes it where it is missing.
folder() {
  [ -d "$1" ] && return 0
  mkdir -p -- "$1" || fail "unable to make ${1#"$root"}: is the file system read-only or full?"
}

# remember PATH BASE: keeps the original of a file, once, and anew where the file was edited by hand since. BASE is the file without our part.
remember() {
  local place
  memory "$1"
  place=$REPLY
  load "$1" || fail "${problems[@]}"
  if [ -e "$place/written" ]; then
    whole "$place/written"
    if [ "$content" = "$REPLY" ]; then return 0; fi
    if [ -e "$place/original" ]; then
      whole "$place/original"
      if [ "$2" = "$REPLY" ] || [ "$2" = "$REPLY"$'\n' ]; then return 0; fi
    elif [ -z "$2" ]; then
      return 0
    fi
  fi
  folder "$place"
  if [ -n "$present" ] && { [ -n "$2" ] || ! [ -e "$place/absent" ]; }; then
    put "$place/original" "$2" "$1"
    if [ "$2" = "$content" ]; then touch -r "$1" -- "$place/original"; fi
    rm -f -- "$place/absent"
  elif [ -z "$present" ]; then
    put "$place/absent" ''
    rm -f -- "$place/original"
  fi
}

# stage_original PATH: the original, where there was one, beside the file.
stage_original() {
  memory "$1"
  [ -e "$REPLY/original" ] || return 0
  local original=$REPLY/original
  whole "$original"
  stage "$1" "$REPLY" "$original"
  touch -r "$original" -- "${1%/*}/.${1##*/}.talos-proxmox"
}

# give_back PATH: the staged original takes its place again, and the state forgets the file.
give_back() {
  memory "$1"
  if [ -e "$REPLY/original" ]; then
    commit "$1"
  else
    rm -f -- "$1" || fail "unable to remove ${1#"$root"}"
  fi
  rm -rf -- "$REPLY"
}
