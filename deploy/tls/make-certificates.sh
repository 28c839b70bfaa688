#!/bin/sh
# Makes a certificate authority for this cluster, and one certificate for each role, with the openssl program.
#
#     sh make-certificates.sh FOLDER [ROLE...]
#
# FOLDER gets ca.pem, ca-key.pem and, for each ROLE (by default scheduler, worker and client), ROLE.pem and ROLE-key.pem. Existing
# files stay: the same command with another role adds its certificate. DAYS sets how long certificates last.
set -eu
umask 077

folder=${1:?usage: sh make-certificates.sh FOLDER [ROLE...]}
shift
[ "$#" -gt 0 ] || set -- scheduler worker client
days=${DAYS:-365}

mkdir -p "$folder"
cd "$folder"

new_key() {
    openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null ||
        openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" # before OpenSSL 3
}

# purposes of the certificates, independent of this machine's openssl.cnf
cat >extensions.cnf <<'END'
[req]
distinguished_name = name
prompt = no
[name]
CN = dslda cluster authority
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[role]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
END

if [ ! -e ca.pem ]; then
    new_key ca-key.pem
    openssl req -x509 -new -config extensions.cnf -extensions authority -key ca-key.pem -sha256 -days "$days" -out ca.pem
fi

for role in "$@"; do
    [ ! -e "$role.pem" ] || continue
    new_key "$role-key.pem"
    openssl req -new -config extensions.cnf -subj "/CN=dslda $role" -key "$role-key.pem" -out "$role.csr"
    openssl x509 -req -in "$role.csr" -CA ca.pem -CAkey ca-key.pem -CAcreateserial -sha256 -days "$days" \
        -extfile extensions.cnf -extensions role -out "$role.pem" 2>/dev/null
    rm -f "$role.csr"
done
rm -f ca.srl extensions.cnf
