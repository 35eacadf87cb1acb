// The client at the other side of a connection, as far as its address tells.
#include "chttp_internal.h"

#include <netinet/in.h>
#include <string.h>

struct client client_of(const struct sockaddr *address) {
    struct client client = {0};
    if (address == NULL)
        return client;
    if (address->sa_family == AF_INET) {
        client.kind = CLIENT_FOUR;
        memcpy(client.bytes, &((const struct sockaddr_in *)address)->sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(six)) {
            client.kind = CLIENT_FOUR;
            memcpy(client.bytes, six->s6_addr + 12, 4);
        } else if (IN6_IS_ADDR_LOOPBACK(six)) {
            return (struct client){.kind = CLIENT_LOOPBACK};
        } else {
            client.kind = CLIENT_SIX;
            // A network of IPv6 has 64 bits, and a host in it has all of its addresses.
            memcpy(client.bytes, six->s6_addr, 8);
        }
    }
    // Each user of this machine has all addresses that begin with 127.
    if (client.kind == CLIENT_FOUR && client.bytes[0] == 127)
        return (struct client){.kind = CLIENT_LOOPBACK};
    return client;
}

bool client_is_same(const struct client *one, const struct client *other) {
    return one->kind == other->kind && memcmp(one->bytes, other->bytes, sizeof one->bytes) == 0;
}

bool chttp_is_same_client(const struct sockaddr *one, const struct sockaddr *other) {
    struct client first = client_of(one), second = client_of(other);
    return client_is_same(&first, &second);
}
